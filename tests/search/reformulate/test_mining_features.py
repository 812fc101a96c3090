"""Features of candidates against plain sums over all documents."""

import numpy as np
import pytest

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.fusion import DocumentVectors
from kytolly.search.reformulate import mining_features
from kytolly.search.reformulate.mining import Miner
from kytolly.search.reformulate.mining_features import (
    TERM_FEATURES,
    MiningRules,
    association,
    segment_counts,
)
from tests.search.reformulate.made_queries import unit_rows

DOCUMENTS = 400


@pytest.fixture(scope="module")
def made():
    """Index, texts, document vectors, and a query of eleven terms with its vector."""
    rng = np.random.default_rng(0)
    words = [f"w{place}" for place in range(60)]
    chance = 1.0 / np.arange(1, 61)
    texts = [
        " ".join(rng.choice(words, rng.integers(3, 20), p=chance / chance.sum()))
        for _ in range(DOCUMENTS)
    ]
    vectors = unit_rows(rng.normal(size=(DOCUMENTS, 6)))
    text = " ".join(words[place] for place in range(4, 37, 3))
    return BM25Index(texts), texts, DocumentVectors(vectors), text, vectors[7].astype(np.float32)


def plain_features(index, mined, scores, known, weight):
    """Name -> [n] features of association and effects, from [documents] columns."""
    columns = np.stack(
        [index.column(term) for term in [*mined.candidates, *mined.lowerable]]
    ).astype(np.float64)
    holds, own = columns > 0, np.stack([index.column(term) for term in known]) > 0
    joint = (holds[:, np.newaxis] & own).sum(axis=2)
    frequency = own.sum(axis=1)
    pmi, npmi = association(joint, holds.sum(axis=1), frequency, index.documents)
    feedback, top = mined.feedback, scores[mined.feedback[0]]
    after = scores + weight * columns
    others = np.delete(after, feedback[0], axis=1).max(axis=1)
    lifts = columns[:, feedback] / top
    newcomers = np.delete(after > scores[feedback[-1]], feedback, axis=1)
    newcomers &= np.delete(holds, feedback, axis=1)
    return {
        "pmi, best": np.maximum(pmi.max(axis=1) / np.log(index.documents + 1), -1.0),
        "npmi, best": npmi.max(axis=1),
        "npmi, mean": npmi.mean(axis=1),
        "npmi, rarest query term": npmi[:, np.argmin(frequency)],
        "query score where it occurs": (scores * holds).sum(axis=1) / holds.sum(axis=1) / top,
        "lift of best document": np.minimum(lifts[:, 0], 2.0),
        "lift of feedback": np.minimum(lifts @ mined.shares, 2.0),
        "lift, spread": np.minimum(lifts.std(axis=1), 2.0),
        "newcomers": np.minimum(newcomers.sum(axis=1) / len(feedback), 2.0),
        "overtakes": np.clip(others / after[:, feedback[0]] - 1.0, -1.0, 1.0),
    }


@pytest.mark.parametrize("many", [0, 10**9])
def test_features_are_those_of_plain_sums_over_all_documents(made, monkeypatch, many):
    monkeypatch.setattr(mining_features, "MANY_POSTINGS", many)
    index, texts, documents, text, vector = made
    rules = MiningRules(feedback_documents=6, candidates=20)
    alone = Miner(index, texts, rules, documents).mine(text, -1, vector)
    others = [t for t in index.terms if t not in (*alone.candidates, *alone.weights)][:4]
    rules, generated = rules._replace(generated=4), dict.fromkeys(others, -1.0)
    mined = Miner(index, texts, rules, documents).mine(text, -1, vector, generated)
    assert mined.candidates[20:] == others  # features of these are those of any other, too
    bm25 = index.scores(index.query_weights(text))
    scores = bm25 + rules.fusion * bm25.max() * documents.cosines(vector)
    assert mined.feedback.tolist() == np.argsort(-scores, kind="stable")[:6].tolist()
    known = [term for term in mined.weights if term in index.term_ids]
    assert len(known) > 8 and len(mined.candidates) == 24
    plain = plain_features(index, mined, scores.astype(np.float64), known, rules.weight)
    for name, column in plain.items():
        found = mined.term_features[:, TERM_FEATURES.index(name)]
        np.testing.assert_allclose(found, column, rtol=1e-4, atol=1e-5, err_msg=name)
        assert name == "overtakes" or np.ptp(found) > 0.0  # it tells candidates apart


@pytest.mark.parametrize("many", [0, 10**9])
def test_counts_of_segments(monkeypatch, many):
    monkeypatch.setattr(mining_features, "MANY_POSTINGS", many)
    found = np.array([1, 0, 1, 1, 0, 1], bool)
    assert segment_counts(found, np.array([0, 1, 4])).tolist() == [1, 2, 1]
