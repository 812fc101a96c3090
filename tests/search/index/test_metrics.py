"""Ranks and metrics against arithmetic, and against ir-measures on random rankings."""

import types

import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.index import metrics, rank_metrics
from kytolly.search.index.rank_metrics import (
    NOT_RANKED,
    metric,
    metric_on_host,
    relevant_ranks,
)

NAMES = ["ndcg@10", "ndcg@3", "ndcg@1000", "ap", "recall@5", "recall@40", "mrr@10", "mrr@2"]


def called(function, compiled):
    return tf.function(function, jit_compile=True) if compiled else function


@pytest.fixture(scope="module")
def rankings():
    """50 queries on 60 documents; a dozen different scores, so that ties abound."""
    random = np.random.default_rng(0)
    scores = random.integers(0, 12, (50, 60)).astype(np.float32)
    counts = random.integers(0, 8, 50).astype(np.int32)
    relevant = np.full((50, 7), -1, np.int32)
    for row, count in zip(relevant, counts, strict=True):
        row[:count] = random.choice(60, count, replace=False)
    return scores, relevant, counts


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_ranks_count_larger_scores_and_equal_ones_before(compiled):
    scores = tf.constant([[3.0, 5.0, 3.0, 1.0, 3.0], [0.0, 0.0, 0.0, -np.inf, 0.0]])
    relevant = tf.constant([[4, 0, 1, -1], [3, 2, -1, -1]])
    ranks = called(relevant_ranks, compiled)(scores, relevant)
    # row 0: 4 has 5.0 and two equal ones before it; row 1: -inf is last, 2 has two zeros before.
    np.testing.assert_array_equal(ranks, [[3, 1, 0, NOT_RANKED], [4, 2, NOT_RANKED, NOT_RANKED]])
    assert ranks.dtype == tf.int32


def test_ranks_take_one_ranking_and_grids_of_them(rankings):
    scores, relevant, _ = rankings
    whole = relevant_ranks(scores, relevant).numpy()
    np.testing.assert_array_equal(relevant_ranks(scores[7], relevant[7]), whole[7])
    grid = relevant_ranks(scores.reshape(5, 10, 60), relevant.reshape(5, 10, 7))
    np.testing.assert_array_equal(grid, whole.reshape(5, 10, 7))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize(
    "name, value",
    [
        ("ndcg@3", (1 / np.log2(2) + 1 / np.log2(4)) / (1 + 1 / np.log2(3) + 1 / np.log2(4))),
        ("ndcg@1", 1.0),
        ("ap", (1 / 1 + 2 / 3 + 3 / 10) / 4),
        ("recall@3", 2 / 4),
        ("recall@10", 3 / 4),
        ("mrr@1", 1.0),
    ],
)
def test_metrics_by_hand(name, value, compiled):
    # Relevant at the places 1, 3 and 10, given out of order; a fourth document is not to be found.
    ranks = tf.constant([[9, 0, NOT_RANKED, 2], [NOT_RANKED] * 4])
    counts = tf.constant([4, 0])
    found = called(lambda r, c: metric(name, r, c), compiled)(ranks, counts)
    np.testing.assert_allclose(found, [value, 0.0], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_those_of_ir_measures(rankings, name):
    scores, relevant, counts = rankings
    ours = metric(name, relevant_ranks(scores, relevant), counts).numpy()
    run = {
        str(query): [(str(doc), float(row[doc])) for doc in np.argsort(-row, kind="stable")]
        for query, row in enumerate(scores)
    }
    qrels = {
        str(query): {str(doc): 2 for doc in row if doc >= 0} or {"0": 0}
        for query, row in enumerate(relevant)
    }
    theirs = metrics.per_query(qrels, run, [name])[name]
    np.testing.assert_allclose(ours, list(theirs.values()), atol=1e-6)


def test_no_column_of_relevant_documents_gives_zero():
    nothing = tf.zeros([3, 0], tf.int32)
    for name in NAMES:
        np.testing.assert_array_equal(metric(name, nothing, [0, 1, 2]), [0, 0, 0])


def test_judged_queries_that_a_run_lacks_count_as_zero():
    qrels = {"1": {"a": 1}, "2": {"b": 3, "c": 0}, "3": {"a": 1}}
    run = {"1": [("a", 1.0)], "3": [], "4": [("a", 1.0)]}
    assert list(metrics.per_query(qrels, run)["ap"].items()) == [("1", 1.0), ("2", 0), ("3", 0)]


@pytest.mark.parametrize(
    "name, nearest",
    [
        ("ndgc@20", "ndcg@20"),
        ("NDCG", "ndcg@10"),
        ("map", "'ap'"),
        ("recal@5", "recall@5"),
        ("R@40", "recall@40"),
        ("mrr@0", "mrr@10"),
        ("ndcg@-3", "ndcg@10"),
        ("", "ndcg@10"),
    ],
)
def test_unknown_metrics_are_refused_with_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"did you mean .*{nearest}"):
        metrics.metric_parts(name)


def test_names_are_read_in_any_case_and_tell_their_depth():
    assert metrics.metric_parts(" nDCG@7 ") == ("ndcg", 7)
    assert metrics.cutoff("AP") is None and metrics.cutoff("recall@40") == 40


def test_the_bootstrap_covers_the_difference():
    random = np.random.default_rng(3)
    base = random.uniform(size=400)
    better = base + random.normal(0.1, 0.2, 400)
    difference, low, high = metrics.paired_bootstrap(better, base, resamples=2_000)
    error = 1.96 * np.std(better - base) / np.sqrt(400)
    assert difference == pytest.approx(np.mean(better - base))
    assert (low, high) == pytest.approx((difference - error, difference + error), abs=0.003)
    assert metrics.paired_bootstrap(better, base, resamples=2_000)[1:] == (low, high)
    assert metrics.paired_bootstrap([1.0, 2.0], [0.0, 1.0]) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="one length"):
        metrics.paired_bootstrap([1.0], [1.0, 2.0])


def test_arrays_are_measured_on_the_cpu_wherever_training_is(rankings, monkeypatch):
    scores, relevant, counts = rankings
    ranks = relevant_ranks(scores, relevant).numpy()
    for name in NAMES:
        expected = metric(name, ranks, counts)
        np.testing.assert_array_equal(metric_on_host(name, ranks, counts), expected)

    def place(*_):
        device = tf.no_op().device
        return types.SimpleNamespace(numpy=lambda: device)

    monkeypatch.setattr(rank_metrics, "metric", place)
    with tf.Graph().as_default(), tf.device("/GPU:0"):
        assert tf.no_op().device.endswith("GPU:0")
        assert metric_on_host("mrr@10", ranks, counts).endswith("CPU:0")
