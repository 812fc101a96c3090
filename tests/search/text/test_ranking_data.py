"""What a re-ranker learns from: candidates, negatives and its metric."""

import math

import numpy as np
import pytest

from kytolly.search.index.collection import Collection
from kytolly.search.index.fusion import NONE, FusedSearch
from kytolly.search.index.metrics import per_query
from kytolly.search.text.ranking_data import (
    Candidates,
    known_scores,
    mixed_scores,
    ndcg,
    search_split,
    training_rows,
)

TEXTS = ["apple", "apple pie", "apple tree pie", "wheel", "apple juice and a long text"]


def collection(judgments, queries=("apple", "pie", "wheel"), ids=None):
    return Collection(
        name="made",
        doc_ids=tuple("abcde"),
        texts=tuple(TEXTS),
        query_ids=ids or tuple(f"q{n}" for n in range(len(queries))),
        queries=tuple(queries),
        judgments={"train": judgments},
    )


def search(made, depth=4):
    return search_split(made, FusedSearch.of_texts(made.texts, fusion=0.0), "train", depth)


def test_candidates_are_the_best_documents_of_the_judged_queries():
    made = collection({"q0": {"b": 1, "d": 1}, "q1": {"a": 0}, "q2": {"d": 2}})
    found = search(made)
    assert found.queries.tolist() == [0, 2]  # nothing is relevant to the other one
    assert set(found.documents[0].tolist()) == {0, 1, 2, 4}
    assert found.documents[1].tolist() == [3, NONE, NONE, NONE]
    assert found.relevant[0].sum() == 1 and found.documents[0][found.relevant[0]] == [1]
    assert found.relevant[1].tolist() == [True, False, False, False]
    assert found.counts.tolist() == [2, 1] and found.scores[1, 1:].tolist() == [0.0] * 3
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_a_query_that_is_a_document_does_not_find_itself():
    made = collection({"a": {"a": 1, "b": 1}, "x": {"d": 1}}, ("apple", "pie"), ("a", "x"))
    found = search(made, depth=3)
    assert set(found.documents[0].tolist()) == {1, 2, 4} and found.counts[0] == 1
    queries, documents, _ = training_rows(made, found, 4, 40, 0)
    assert not (documents[queries == 0] == 0).any()


def test_rows_begin_with_a_relevant_document_and_go_on_with_others_that_are_found():
    made = collection({"q0": {"b": 1, "a": 1}, "q2": {"d": 1}})
    queries, documents, _ = training_rows(made, search(made), 2, None, 0)
    rows = {
        (q, docs[0]): set(docs[1:]) for q, docs in zip(queries, documents.tolist(), strict=True)
    }
    assert rows.keys() == {(0, 0), (0, 1), (2, 3)}
    assert rows[0, 0] == rows[0, 1] == {2, 4}  # "wheel" is not found
    assert len(rows[2, 3]) == 2 and 3 not in rows[2, 3]  # nothing else is found


def test_more_samples_are_other_negatives_and_a_seed_repeats_them():
    made = collection({"q0": {"a": 1}})
    found = search(made, depth=4)
    queries, documents, _ = training_rows(made, found, 1, 30, 3)
    assert queries.tolist() == [0] * 30 and set(documents[:, 1].tolist()) == {1, 2, 4}
    np.testing.assert_array_equal(training_rows(made, found, 1, 30, 3)[1], documents)
    assert training_rows(made, found, 4, 1, 0)[1][0].tolist()[0] == 0  # one is not found by BM25
    assert set(training_rows(made, found, 4, 1, 0)[1][0].tolist()) == {0, 1, 2, 3, 4}
    assert len(training_rows(made, found, 6, 1, 0)[1][0]) == 7  # more than there are: some twice


def test_the_score_of_a_row_is_that_of_the_search_and_what_is_not_found_has_the_lowest():
    documents = np.array([[4, 2, NONE], [1, 3, 0]], np.int32)
    scores = np.array([[8.0, 2.0, 0.0], [5.0, 4.0, 1.0]], np.float32)
    found = Candidates(np.array([7, 9]), documents, scores, documents > 8, np.ones(2, np.int32))
    known = known_scores(found, np.array([1, 0]), np.array([[0, 2, 1], [2, 3, 4]]))
    np.testing.assert_allclose(known, [[0.2, 0.2, 1.0], [0.25, 0.25, 1.0]])


def test_a_collection_without_negatives_is_refused():
    made = collection({"q0": dict.fromkeys("abcde", 1)})
    with pytest.raises(ValueError, match="made has no train query with a relevant document and"):
        training_rows(made, search(made), 2, None, 0)


def test_the_metric_is_that_of_the_reports():
    rng = np.random.default_rng(0)
    documents = np.stack([rng.permutation(40)[:20] for _ in range(12)]).astype(np.int32)
    documents[0, 15:] = NONE
    relevant = (rng.random((12, 20)) < 0.2) & (documents != NONE)
    counts = (relevant.sum(axis=1) + rng.integers(1, 3, 12)).astype(np.int32)
    scores = rng.integers(0, 5, (12, 20)).astype(np.float32)
    found = Candidates(np.arange(12), documents, scores, relevant, counts)
    qrels = {
        str(q): {f"d{n}": 1 for n in documents[q][relevant[q]]}
        | {f"missing{n}": 1 for n in range(counts[q] - relevant[q].sum())}
        for q in range(12)
    }
    run = {
        str(q): [
            (f"d{documents[q, n]}", 0.0)
            for n in np.argsort(-scores[q], kind="stable")
            if documents[q, n] != NONE
        ]
        for q in range(12)
    }
    expected = list(per_query(qrels, run, ["ndcg@10"])["ndcg@10"].values())
    np.testing.assert_allclose(ndcg(found, scores), expected, atol=1e-6)
    one = Candidates(*(np.array(part) for part in ([0], [[3, 4]], [[2, 1]], [[False, True]], [1])))
    assert ndcg(one, np.array([[2.0, 1.0]]))[0] == pytest.approx(1 / math.log2(3))


def test_a_weight_of_0_is_the_first_search_and_scores_are_in_units_of_the_highest():
    scores, network = np.array([[8.0, 4.0, 2.0], [0.0, 0.0, 0.0]]), np.array([[1.0, -1.0, 3.0]] * 2)
    np.testing.assert_allclose(mixed_scores(scores, network, 0.0)[0], [1.0, 0.5, 0.25])
    np.testing.assert_allclose(mixed_scores(scores, network, 0.5)[0], [1.5, 0.0, 1.75])
    np.testing.assert_allclose(mixed_scores(scores, network, 0.5)[1], [0.5, -0.5, 1.5])
