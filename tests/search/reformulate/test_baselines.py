import functools
import os
from pathlib import Path

import numpy as np
import pytest

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.corpus import load_collection
from kytolly.search.reformulate.baselines import (
    RM3,
    GreedyCeiling,
    Rocchio,
    evaluate,
    tune,
)
from kytolly.search.reformulate.held_out import RM3_GRID, ROCCHIO_GRID
from kytolly.search.reformulate.query import Query
from tests.search.index.words import Words

TEXTS = ("q a a b", "q c", "a d", "e", "f", "g", "c h")


@pytest.fixture(scope="module")
def index():
    return BM25Index(TEXTS, Words())


def query(relevant=(), candidates=("a", "b", "c"), excluded=-1, weights=None, number=0):
    count = len(candidates)
    return Query(
        number=number,
        weights=weights or {"q": 1.0},
        candidates=list(candidates),
        candidate_features=np.zeros((count, 1), np.float32),
        state_features=np.zeros(1, np.float32),
        vector=np.zeros(1, np.float32),
        relevant=np.array(relevant, np.int64),
        excluded=excluded,
    )


def as_typed(query):
    return query.weights


def test_rm3_by_hand(index):
    docs, scores = index.search({"q": 1.0}, 5)
    assert docs.tolist() == [1, 0]  # the shorter one first
    weights = RM3(index, documents=2, terms=3, original=0.6, common=0.3)(query())
    # "q" stands in 2 of 7 documents, which 0.3 allows. Terms of document 1: q c, of 0: q a a b.
    first, second = scores
    language = {"q": first / 2 + second / 4, "c": first / 2, "a": second / 2, "b": second / 4}
    kept = sorted(language, key=lambda term: -language[term])[:3]
    assert set(kept) == {"q", "c", "a"}
    total = sum(language[term] for term in kept)
    expected = {term: 0.4 * language[term] / total for term in kept}
    expected["q"] += 0.6
    assert weights == pytest.approx(expected)
    assert sum(weights.values()) == pytest.approx(1.0)


def test_rm3_takes_no_common_terms_and_survives_no_feedback(index):
    weights = RM3(index, documents=2, terms=3, common=0.2)(query())  # at most 1.4 documents
    assert weights == pytest.approx({"q": 0.5, "b": 0.5})  # a, c and q stand in 2 documents
    assert RM3(index)(query(weights={"unknown": 2.0})) == {"unknown": 0.5}


def test_rocchio_by_hand(index):
    method = Rocchio(index, documents=2, terms=2, alpha=0.5, beta=0.8, common=0.3)
    weights = method(query(weights={"q": 3.0, "e": 4.0}))
    # The query's length is 5: q 0.6, e 0.8. Its best documents: 3 ("e"), then 1 (q c: length
    # sqrt 2), so the mean is e 1/2, q and c 1/sqrt 8 each; c comes first in the alphabet.
    assert index.search({"q": 3.0, "e": 4.0}, 2)[0].tolist() == [3, 1]
    expected = {"q": 0.5 * 0.6, "e": 0.5 * 0.8 + 0.8 * 0.5, "c": 0.8 / np.sqrt(8)}
    assert weights == pytest.approx(expected)


def test_feedback_never_holds_the_query_itself(index):
    weights = RM3(index, documents=1, terms=5, common=1.0)(query(excluded=1))
    assert "c" not in weights and "a" in weights  # document 1 is the best and left out


def test_evaluate_ranks_as_the_scores_do(index):
    # Documents 1, 0 have "q"; then all others with score 0, in their order.
    cases = [(1, 1.0), (0, 1 / 2), (2, 1 / 3), (3, 1 / 4), (6, 1 / 7)]
    queries = [query([doc]) for doc, _ in cases]
    found = evaluate(as_typed, queries, index, "mrr@10", workers=2)
    np.testing.assert_allclose(found, [value for _, value in cases], rtol=1e-6)
    ndcg = evaluate(as_typed, [query([0]), query([0, 1, 6])], index)
    ideal = 1 + 1 / np.log2(3) + 1 / 2
    gained = 1 + 1 / np.log2(3) + 1 / np.log2(8)
    np.testing.assert_allclose(ndcg, [1 / np.log2(3), gained / ideal], rtol=1e-6)


def test_an_excluded_document_is_neither_found_nor_in_the_way(index):
    found = evaluate(as_typed, [query([0], excluded=1)], index, "mrr@10")
    assert found.tolist() == [1.0]


def test_queries_without_judgments_are_refused(index):
    with pytest.raises(ValueError, match=r"2 queries, 1 without a relevant document \[7\]"):
        evaluate(as_typed, [query([1]), query(number=7)], index)
    with pytest.raises(ValueError, match="0 queries"):
        evaluate(as_typed, [], index)


def test_the_ceiling_adds_what_the_judgments_like_and_stops(index):
    judged = query([2], candidates=("b", "c", "a"))  # document 2 is "a d": "a" brings it nearer
    method = GreedyCeiling(index, weights=(0.1, 3.0))
    weights = method(judged)
    assert weights == {"q": 1.0, "a": 3.0}
    assert evaluate(method, [judged], index) > evaluate(as_typed, [judged], index)
    assert method(query([1])) == {"q": 1.0}  # nothing to gain


def test_the_ceiling_takes_the_smallest_weight_that_gains_as_much(index):
    # "b" stands in document 0 alone, which is second: it leads with weight 0.3 as with 1.
    judged = query([0], candidates=("b",))
    assert GreedyCeiling(index, weights=(0.01, 0.3, 1.0))(judged) == {"q": 1.0, "b": 0.3}
    assert GreedyCeiling(index, weights=(0.01,))(judged) == {"q": 1.0}
    assert GreedyCeiling(index, terms=0)(judged) == {"q": 1.0}


@pytest.mark.parametrize("make, grid", [(RM3, RM3_GRID), (Rocchio, ROCCHIO_GRID)])
def test_tuning_cannot_lose_to_bm25(index, make, grid):
    # No feedback document is relevant: whatever is added harms, or changes nothing.
    judged = [query([2]), query([4], weights={"c": 1.0, "a": 1.0})]
    plain = evaluate(as_typed, judged, index, "mrr@10").mean()
    tuned = tune(functools.partial(make, index), grid, judged, index, "mrr@10", workers=1)
    assert tuned.value >= plain
    weights = make(index, **{name: choices[0] for name, choices in grid.items()})
    np.testing.assert_array_equal(
        evaluate(weights, judged, index), evaluate(as_typed, judged, index)
    )


def test_tuning_takes_the_best_of_the_grid_and_of_equals_the_first(index):
    grid = {"weight": (0.0, 3.0, 4.0), "terms": (1, 2)}
    judged = [query([2], candidates=("a", "b"))]

    def append_best(weight, terms):
        return lambda query: {**query.weights, **dict.fromkeys(query.candidates[:terms], weight)}

    tuned = tune(append_best, grid, judged, index, "mrr@10")
    assert tuned.settings == {"weight": 3.0, "terms": 1}
    assert tuned.value == pytest.approx(evaluate(tuned.method, judged, index, "mrr@10")[0])
    tuned = tune(functools.partial(RM3, index), {"documents": (3, 5)}, judged, index)
    assert isinstance(tuned.method, RM3) and tuned.method.documents == 3


@pytest.mark.parametrize("name, expected", [("wikiqa", 0.475), ("stackfaq", 0.769)])
def test_bm25_on_real_collections(name, expected):
    folder = os.environ.get("KYTOLLY_IR_DATA")
    if not folder:
        pytest.skip("KYTOLLY_IR_DATA names no folder of collections")
    real = load_collection(Path(folder) / name, ["test"])
    index = BM25Index(real.texts)
    queries = [
        query(real.relevant(number, "test"), weights=index.query_weights(real.queries[number]))
        for number in real.split("test")
    ]
    queries = [one for one in queries if len(one.relevant)]
    assert evaluate(as_typed, queries, index).mean() == pytest.approx(expected, abs=0.01)


def test_the_ceiling_lowers_a_term_of_the_query_where_that_is_best(index):
    # "c" also finds "c h", before document 0, which has "q" alone
    typed = {"q": 1.0, "c": 1.0}
    judged = query([0], candidates=("e",), weights=typed)._replace(lowerable=("q", "c"))
    method = GreedyCeiling(index, weights=(0.5, 1.0))
    assert method(judged) == {"q": 1.0, "c": 0.5}
    ranks = [1 / np.log2(2 + rank) for rank in (2, 1)]
    found = [evaluate(one, [judged], index)[0] for one in (as_typed, method)]
    assert found == pytest.approx(ranks)
