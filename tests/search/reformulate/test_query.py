import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.embedding import EmbeddingCache, HashEncoder
from kytolly.search.index.fusion import DocumentVectors, TermVectors
from kytolly.search.reformulate.mining import NO_CANDIDATE, Miner, mine_texts
from kytolly.search.reformulate.mining_features import MiningRules, association
from kytolly.search.reformulate.query import (
    CANDIDATE_FEATURES,
    STATE_FEATURES,
    Query,
    embedding_features,
    mine,
    skip_report,
    with_judgments,
)
from kytolly.search.reformulate.result import NO_TOKEN

TEXTS = (
    "Glacier caves form in melting ice of glaciers",
    "Melting ice forms tunnels below a glacier",
    "A tax on income",
    "Income of tunnels",
    "solitary",
    "Which caves are warm",
)
QUERIES = ("glacier caves", "solitary", "the of and", "zzz", "income tax", "Income of tunnels")


@pytest.fixture
def collection():
    return Collection(
        name="small",
        doc_ids=tuple(f"d{n}" for n in range(6)),
        texts=TEXTS,
        query_ids=("q0", "q1", "q2", "q3", "q4", "d3"),  # the last one is a document
        queries=QUERIES,
        judgments={"train": {"q0": {"d1": 1, "d5": 0}, "q4": {"d3": 2, "d2": 1}}},
    )


@pytest.fixture(scope="module")
def index():
    return BM25Index(TEXTS)


@pytest.fixture(scope="module")
def documents():
    return DocumentVectors.of_texts(TEXTS, HashEncoder(64))


def cache():
    return EmbeddingCache(HashEncoder(64), 1000)


def feature(query, name):
    column = query.candidate_features[:, CANDIDATE_FEATURES.index(name)]
    return dict(zip((*query.candidates, *query.lowerable), column, strict=True))


def test_candidates_are_the_feedbacks_terms_without_the_querys(collection, index, documents):
    rules = MiningRules(feedback_documents=2, fusion=0.0)
    (query,) = mine(collection, [0], index, cache(), documents, rules)
    # "glacier caves": documents 0 and 1 (two terms, one term); then 5 ("caves" alone) is third,
    # or second where "caves" weighs more: d0 has both, d1 "glacier", d5 "caves", both once.
    assert set(query.candidates) >= {"form", "melt", "ice"}
    assert not {"glacier", "cave"} & set(query.candidates)
    assert query.weights == {"glacier": 1.0, "cave": 1.0}
    assert query.excluded == -1 and len(query.relevant) == 0
    assert query.lowerable == ("glacier", "cave")
    written = dict(zip((*query.candidates, *query.lowerable), query.surfaces, strict=True))
    assert written["melt"] == "melting" and written["cave"] == "caves"
    assert feature(query, "is in the query") == {
        **dict.fromkeys(query.candidates, 0.0),
        **dict.fromkeys(query.lowerable, 1.0),
    }


def test_a_term_is_shown_as_it_is_most_often_written():
    texts = ["ice runs", "ice runs running", "ice running running", "sun", "sea"]
    (surface,) = [
        surface
        for term, surface in zip(
            *(lambda m: (m.candidates, m.surfaces))(
                Miner(BM25Index(texts), texts, MiningRules()).mine("ice")
            ),
            strict=True,
        )
        if term == "run"
    ]
    assert surface == "running"  # 3 against 2


def test_features_by_hand():
    texts = ["a1 b1 c1", "a1 b1", "b1 d1 d1", "e1", "f1", "g1", "h1"]
    miner = Miner(BM25Index(texts), texts, MiningRules(feedback_documents=2))
    mined = miner.mine("a1")
    assert mined.feedback.tolist() == [1, 0]  # the shorter one first
    features = {
        term: dict(zip(CANDIDATE_FEATURES, row, strict=False))
        for term, row in zip(mined.candidates, mined.term_features, strict=True)
    }
    assert set(features) == {"b1", "c1"}
    b, c = features["b1"], features["c1"]
    assert (b["feedback documents"], c["feedback documents"]) == (1.0, 0.5)
    assert b["clarity"] == pytest.approx(2 / 3)  # in 3 documents, 2 of them feedback
    assert (b["in best document"], c["in best document"]) == (1.0, 0.0)
    assert b["feedback frequency"] == pytest.approx(1.0)
    assert c["feedback frequency"] == pytest.approx(mined.shares[1])
    # b1 in 3, a1 in 2, both in 2 of 7: npmi = log(2 * 7 / (3 * 2)) / -log(2 / 7)
    assert b["npmi, best"] == pytest.approx(np.log(14 / 6) / np.log(7 / 2), rel=1e-5)
    assert b["pmi, best"] == pytest.approx(np.log(14 / 6) / np.log(8), rel=1e-5)
    assert b["newcomers"] == 0 and b["has digit"] == 1
    assert b["length"] == pytest.approx(0.2)


def test_effects_say_what_adding_a_term_would_do():
    texts = ["q1 x1 x1", "q1 y1", "x1", "z1 z2", "z3", "z4", "z5 z6"]
    index = BM25Index(texts)
    weight = 3.0
    mined = Miner(index, texts, MiningRules(feedback_documents=2, weight=weight)).mine("q1")
    row = mined.term_features[mined.candidates.index("x1")]
    features = dict(zip(CANDIDATE_FEATURES, row, strict=False))
    base, column = index.scores({"q1": 1.0}), weight * index.column("x1")
    assert mined.feedback.tolist() == [1, 0]
    assert column[2] > base[0]  # document 2 enters the best two
    assert features["newcomers"] == 0.5
    after = base + column
    best_other = max(after[0], after[2])
    assert features["overtakes"] == pytest.approx(min(best_other / after[1] - 1, 1), rel=1e-5)
    assert features["lift of best document"] == 0
    shares = mined.shares
    lift = min(shares[1] * column[0] / weight / base[1], 2)
    assert features["lift of feedback"] == pytest.approx(lift, rel=1e-5)


def test_association_by_hand():
    pmi, npmi = association(np.array([[2.0, 0.0]]), np.array([4.0]), np.array([2.0, 3.0]), 16)
    # p(a) = 1/4, p(b) = 1/8, together 1/8: pmi = log 4, npmi = log 4 / log 8 = 2/3
    np.testing.assert_allclose(pmi[0], [np.log(4), np.log(0.5 / 16 / (4 / 16 * 3 / 16))])
    np.testing.assert_allclose(npmi, [[2 / 3, -1]])
    always = association(np.array([[5.0]]), np.array([5.0]), np.array([5.0]), 5)
    np.testing.assert_allclose(always, 0)


def test_embedding_features_by_hand():
    terms = np.array([[1.0, 0.0], [0.0, 1.0]])
    query = np.array([0.6, 0.8])
    documents = np.array([[1.0, 0.0], [0.0, 1.0]])
    words = np.array([[0.0, 1.0], [-1.0, 0.0]])
    shares, own = np.array([0.75, 0.25]), np.array([[-1.0, 0.0]])
    with_own = np.concatenate([terms, own])
    features, state = embedding_features(with_own, query, words, documents, shares, 2)
    np.testing.assert_allclose(features[2, :2], [-0.6, -3 / np.sqrt(10)], atol=1e-6)
    np.testing.assert_allclose(features[2, 4:6], [-0.5, -1.3], atol=1e-6)  # means are of the others
    features = features[:2]
    length = np.hypot(0.75, 0.25)
    to_feedback = np.array([0.75, 0.25]) / length
    expected = [[0.6, 0.8], to_feedback, [1, 0], [0, 1], [0.5, 0.5], [-0.1, 0.1]]
    np.testing.assert_allclose(features[:, :6].T, expected, atol=1e-6)
    np.testing.assert_allclose(features[:, 6], to_feedback - to_feedback.mean(), atol=1e-6)
    agreement = (0.6 * 0.75 + 0.8 * 0.25) / length
    np.testing.assert_allclose(state, [agreement, 0.6, length, 0.7], rtol=1e-5)


def test_queries_without_tokens_or_candidates_are_counted(collection, index, documents):
    skipped = []
    alone = MiningRules(fusion=0.0)
    queries = mine(collection, range(6), index, cache(), documents, alone, skipped=skipped)
    assert [query.number for query in queries] == [0, 4, 5]
    fused = mine(collection, range(6), index, cache(), documents)  # cosines find more documents
    assert [query.number for query in fused] == [0, 1, 4, 5]
    assert [(skip.number, skip.reason) for skip in skipped] == [
        (1, NO_CANDIDATE),
        (2, NO_TOKEN),
        (3, NO_TOKEN),
    ]
    assert skip_report(skipped).startswith("3 queries skipped: 2 no token")
    assert skip_report([]) == "0 queries skipped"


def test_a_query_that_is_a_document_does_not_find_itself(collection, index, documents):
    (query,) = mine(collection, [5], index, cache(), documents)
    assert query.excluded == 3
    assert "tax" in query.candidates  # of document 2, the only other one with "income"


def test_the_first_search_is_that_of_bm25_and_cosines(collection, index, documents):
    """Feedback documents by hand: of scores of all documents, as a search would add them up."""
    text, vector = "glacier caves", HashEncoder(64).encode(["glacier caves"])[0]
    bm25 = index.scores(index.query_weights(text))
    cosines = np.maximum(HashEncoder(64).encode(list(TEXTS)) @ vector, 0)
    assert bm25[2] == bm25[3] == bm25[4] == 0 < cosines[[2, 3, 4]].max()
    for fusion, excluded in ((0.5, -1), (3.0, -1), (3.0, 0)):
        rules = MiningRules(feedback_documents=6, fusion=fusion)
        mined = Miner(index, TEXTS, rules, documents).mine(text, excluded, vector)
        own = bm25 * (np.arange(6) != excluded)
        fused = (own + fusion * own.max() * cosines) * (np.arange(6) != excluded)
        order = [doc for doc in np.argsort(-fused, kind="stable") if fused[doc] > 0]
        assert mined.feedback.tolist() == order and len(order) > 3
        np.testing.assert_allclose(mined.shares, fused[order] / fused.sum(), rtol=5e-3)
    alone = Miner(index, TEXTS, MiningRules(fusion=0.0), documents).mine(text, -1, vector)
    assert set(alone.feedback) == {0, 1, 5}
    again = Miner(index, TEXTS, MiningRules(), None).mine(text, -1, vector)
    assert again.feedback.tolist() == alone.feedback.tolist()


def test_judgments_come_last_and_change_nothing_that_was_mined(collection, index, documents):
    unjudged = dataclasses.replace(collection, judgments={})
    before = mine(unjudged, [0, 4], index, cache(), documents)
    after = with_judgments(mine(collection, [0, 4], index, cache(), documents), collection, "train")
    assert [query.relevant.tolist() for query in after] == [[1], [2, 3]]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.candidate_features, other.candidate_features)
        assert one.candidates == other.candidates


def test_features_are_named_finite_and_texts_embedded_once(collection, index, documents):
    embeddings = cache()
    queries = mine(collection, range(6), index, embeddings, documents)
    for query in queries:
        n = query.options
        assert n == len(query.candidates) + len(query.lowerable)
        assert query.candidate_features.shape == (n, len(CANDIDATE_FEATURES))
        assert query.state_features.shape == (len(STATE_FEATURES),)
        assert query.candidate_features.dtype == query.state_features.dtype == np.float32
        assert np.isfinite(query.candidate_features).all()
        assert np.abs(query.candidate_features).max() < 4 and len(query.surfaces) == n
        assert np.linalg.norm(query.vector) == pytest.approx(1.0, abs=1e-5)
    missed = embeddings.misses
    mine(collection, range(6), index, embeddings, documents)
    assert embeddings.misses == missed


def test_processes_mine_the_same_and_import_nothing_from_the_working_folder(
    collection, index, documents, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickle.py").write_text("open('executed', 'w')")
    rules = MiningRules(generated=1)
    proposed = [{"tax": -1.0}, {"warm": -2.0}, {}, {}, {}, {}]
    one, two = (
        mine(collection, range(6), index, cache(), documents, rules, workers, generated=proposed)
        for workers in (1, 2)
    )
    assert [query.number for query in one] == [query.number for query in two]
    for first, second in zip(one, two, strict=True):
        assert first.candidates == second.candidates and first.surfaces == second.surfaces
        np.testing.assert_array_equal(first.candidate_features, second.candidate_features)
        np.testing.assert_array_equal(first.state_features, second.state_features)
    generated = [feature(query, "is generated") for query in two[:2]]
    assert generated[0]["tax"] == generated[1]["warm"] == 1.0
    assert not (tmp_path / "executed").exists()


def test_more_processes_than_cores_are_not_started(index, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(subprocess, "run", None)
    miner = Miner(index, TEXTS, MiningRules())
    assert len(mine_texts(miner, ["income"] * 3, [-1] * 3, [None] * 3, workers=1_000)) == 3


def test_a_process_that_fails_is_named(index, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    miner = Miner(index, TEXTS, MiningRules())
    failed = subprocess.CompletedProcess([], 1, b"", b"Traceback\nAttributeError: lower\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match="process 1 of 2 that mine candidates failed: Attribute"):
        mine_texts(miner, ["income", "caves"], [-1, -1], [None] * 2, workers=2)
    with pytest.raises(ValueError, match="workers is 0"):
        mine_texts(miner, ["income"], [-1], [None], workers=0)


def test_texts_of_another_index_are_refused(index):
    with pytest.raises(ValueError, match="holds 6 documents, but there are 5 texts"):
        Miner(index, TEXTS[1:], MiningRules())


def test_a_real_collection_is_mined_whole():
    folder = os.environ.get("KYTOLLY_IR_DATA")
    if not folder:
        pytest.skip("KYTOLLY_IR_DATA names no folder of collections")
    real = load_collection(Path(folder) / "stackfaq", splits=())
    skipped = []
    numbers = range(0, len(real.queries), 10)
    queries = mine(
        real,
        numbers,
        BM25Index(real.texts),
        cache(),
        DocumentVectors.of_texts(real.texts, HashEncoder(64)),
        skipped=skipped,
    )
    assert len(queries) + len(skipped) == len(numbers) and len(skipped) < 3
    assert np.mean([len(query.candidates) for query in queries]) > 40


def test_neighbors_are_candidates_that_no_feedback_document_needs_to_hold(index):
    texts, vectors = TEXTS, DocumentVectors.of_texts(TEXTS, HashEncoder(64))
    terms = TermVectors(
        {"incom": "income", "warm": "warm"},
        np.array([index.term_ids["incom"], index.term_ids["warm"]]),
        np.eye(2, 64, dtype=np.float32),
    )
    rules = MiningRules(feedback_documents=2, neighbors=1)
    plain = Miner(index, texts, rules, vectors)
    vector = np.zeros(64, np.float32)
    vector[0] = 1.0
    alone = plain.mine("glacier caves", -1, vector)
    assert "incom" not in alone.candidates
    found = Miner(index, texts, rules, vectors, terms).mine("glacier caves", -1, vector)
    assert found.candidates == [*alone.candidates, "incom"] and found.lowerable == [
        "glacier",
        "cave",
    ]
    assert found.surfaces[len(alone.candidates)] == "income"
    row = dict(zip(CANDIDATE_FEATURES, found.term_features[len(alone.candidates)], strict=False))
    assert row["mining rank"] == row["feedback documents"] == row["is in the query"] == 0
    np.testing.assert_array_equal(found.query_features, alone.query_features)


def test_a_query_of_one_term_keeps_it_and_long_ones_offer_their_first(index):
    def own(text, most=12):
        return Miner(index, TEXTS, MiningRules(query_terms=most)).mine(text).lowerable

    assert own("income") == own("income unknownword") == own("glacier caves", 0) == []
    assert own("caves glacier") == ["cave", "glacier"] and own("caves glacier", 1) == ["cave"]


def test_changed_weights_add_terms_and_lower_those_of_the_query():
    nothing = np.zeros(0)
    query = Query(
        number=0,
        weights={"a": 2.0, "b": 1.0},
        candidates=["c", "d"],
        candidate_features=nothing,
        state_features=nothing,
        vector=nothing,
        relevant=nothing,
        lowerable=("a", "b"),
    )
    assert query.options == 4 and query.changed_weights({}) == query.weights
    assert query.changed_weights({1: 0.3, 2: 0.25}) == {"a": 1.5, "b": 1.0, "d": 0.3}
    assert query.weights == {"a": 2.0, "b": 1.0}
