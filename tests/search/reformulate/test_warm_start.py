"""Learning from judgments: its loss, its mean weights, and that it learns what helps."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.reformulate.choice import proposals
from kytolly.search.reformulate.device_env import DeviceQueries, is_query_term, kept_proposals
from kytolly.search.reformulate.network import NumpyScorer, make_scorer
from kytolly.search.reformulate.options import AgentOptions
from kytolly.search.reformulate.query import SearchRules
from kytolly.search.reformulate.train import prepare
from kytolly.search.reformulate.warm_start import (
    FIRST_TEMPERATURE,
    ListwisePolicy,
    fit_listwise,
    parts_of,
)
from tests.search.reformulate.made_queries import helpful_table
from tests.search.reformulate.tiny_collection import make_options, write_collection

RULES = SearchRules("ndcg@10", 2, 4, 64)
SMALL = AgentOptions(hidden_units=(8,), dropout=0.0)


@pytest.fixture(scope="module")
def table():
    return helpful_table(30)


def scorer(table, seed=0):
    keras.utils.set_random_seed(seed)
    return make_scorer(table, SMALL)


def gains(network, table, fusion=0.0):
    """What the network's proposals gain for each query."""
    queries = DeviceQueries(table, RULES)
    weights, _ = proposals(NumpyScorer(network), queries, fusion)
    used = kept_proposals(weights, is_query_term(table.candidate_features), RULES.max_terms)
    return queries.values(fusion, used) - queries.values(fusion, np.zeros_like(used))


def fit(network, table, epochs=150, **options):
    rows = [np.arange(len(table.number))]
    fit_listwise(network, DeviceQueries(table, RULES), rows, epochs, 3e-2, 0, **options)


def test_it_learns_which_candidates_help_fresh_queries(table):
    fresh, network = helpful_table(20, seed=1), scorer(table)
    before = gains(network, fresh).mean()
    losses = []
    fit(network, table, watch=lambda epoch, loss, error: losses.append((epoch, loss, error)))
    assert [epoch for epoch, _, _ in losses] == list(range(1, 151))
    assert losses[-1][1] < 0.8 * losses[0][1]
    gained = gains(network, fresh)
    assert gained.mean() > before + 0.3 and before < 0.2
    _, expected = proposals(NumpyScorer(network), DeviceQueries(fresh, RULES), 0.0)
    assert abs(expected.mean() - gained.mean()) < 0.25


def test_the_loss_is_a_cross_entropy_and_the_error_that_of_the_gain(table):
    network, queries = scorer(table), DeviceQueries(table, RULES, fusions=(0.0, 1.0))
    rows, fusion = np.array([3, 0, 7], np.int32), np.array([1.0, 0.0, 1.0], np.float32)
    seen = queries.observation(tf.constant(rows), tf.constant(fusion))
    policy = ListwisePolicy(network, queries, 1e-3, 10)
    params, expected = network(seen)
    weights = np.log1p(np.exp(params.numpy()[:, :4].astype(np.float64)))
    cross_entropy, error = 0.0, 0.0
    for row, own, weight, number in zip(rows, fusion, weights, expected.numpy(), strict=True):
        scores = table.base[row] + own * table.cosine[row]
        scores = (scores + weight @ table.columns[row].astype(np.float64)) / FIRST_TEMPERATURE
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        cross_entropy -= np.log(shares[table.relevant[row]]).mean() / 3
        used = np.zeros((30, 4), np.float32)
        used[row, np.argsort(-weight)[:2]] = np.sort(weight)[::-1][:2]
        gain = queries.values(own, used)[row] - queries.values(own, 0 * used)[row]
        error += (number - gain) ** 2 / 3
    found = policy.fit_step(tf.constant(rows), tf.constant(fusion)).numpy()
    np.testing.assert_allclose(found, [cross_entropy, error], rtol=1e-3, atol=1e-6)


def test_mean_weights_are_those_of_all_updates(table):
    network, queries = scorer(table), DeviceQueries(table, RULES)
    policy = ListwisePolicy(network, queries, 1e-2, 5)
    seen = []
    for first in range(5):
        policy.fit_step(tf.range(first, first + 8), tf.zeros([8]))
        seen.append([weight.numpy() for weight in policy.weights])
    policy.take_mean_weights()
    shares = 0.01 * 0.99 ** np.arange(4, -1, -1)
    for place, weight in enumerate(policy.weights):
        expected = sum(s * own[place] for s, own in zip(shares, seen, strict=True))
        np.testing.assert_allclose(weight, expected / shares.sum(), rtol=1e-4, atol=1e-6)


def test_weights_have_a_cost(table):
    sums = []
    for cost in (0.0, 1.0):
        network = scorer(table)
        fit(network, table, epochs=30, weight_cost=cost)
        sums.append(proposals(NumpyScorer(network), DeviceQueries(table, RULES), 0.0)[0].sum())
    assert sums[1] < 0.8 * sums[0]


def test_groups_count_alike_however_large_they_are(table, monkeypatch):
    monkeypatch.setattr("kytolly.search.reformulate.warm_start.SHARE", 12)
    counts = np.zeros(30, int)

    def count(self, rows, fusion):
        np.add.at(counts, rows.numpy(), 1)
        return tf.zeros([2])

    monkeypatch.setattr(ListwisePolicy, "update", count)
    monkeypatch.setattr(tf, "function", lambda call, **options: call)
    groups = [np.arange(5), np.arange(5, 30)]
    network = scorer(table)
    before = network.get_weights()
    monkeypatch.setattr(ListwisePolicy, "take_mean_weights", lambda self: None)
    fit_listwise(network, DeviceQueries(table, RULES), groups, 50, 1e-2, 0)
    assert counts[:5].sum() == counts[5:].sum() == 600
    assert counts[:5].min() >= 100 and counts[5:].min() > 5
    for old, new in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_no_pass_changes_nothing(table):
    network = scorer(table)
    before = network.get_weights()
    fit(network, table, epochs=0)
    for old, new in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_nothing_is_compiled_where_xla_is_off(table):
    """The fixture of this folder sets KYTOLLY_XLA."""
    policy = ListwisePolicy(scorer(table), DeviceQueries(table, RULES), 1e-3, 1)
    assert policy.fit_step._jit_compile is None


@pytest.fixture(scope="module")
def prepared(collection):
    return prepare(make_options(collection), lambda line: None)


def parts_by_topic(found):
    """[8, 3] the parts of the three queries of each topic, which share relevant documents."""
    parts = parts_of(found.context, found.train, found.dev)
    assert parts is not None and set(parts) == {0, 1, 2}
    return parts.reshape(8, 3)


def test_paraphrases_stay_together_where_dev_queries_are_of_other_documents(prepared):
    parts = parts_by_topic(prepared)
    assert (parts == parts[:, :1]).all()
    assert sorted(np.bincount(parts[:, 0])) == [2, 3, 3]


def test_paraphrases_are_parted_where_dev_queries_have_the_same_documents(tmp_path):
    other = write_collection(tmp_path / "tiny")
    path = other / "qrels" / "dev.tsv"
    rows = [f"q{k}.0\tgood{k - 8}.0\t1" for k in (8, 9, 10)]
    path.write_text("\n".join([path.read_text().splitlines()[0], *rows]) + "\n")
    parts = parts_by_topic(prepare(make_options(other), lambda line: None))
    assert (parts != parts[:, :1]).any()
    assert np.bincount(parts.ravel()).tolist() == [8, 8, 8]


def test_a_query_is_not_its_own_relevant_document(tmp_path):
    other = write_collection(tmp_path / "tiny")
    first = (other / "corpus.jsonl").read_text().splitlines()[0]
    with (other / "queries.jsonl").open("a") as file:
        file.write(first + "\n")
    rows = "query-id\tcorpus-id\tscore\ngood0.0\tgood0.0\t1\ngood0.0\tgood9.0\t1\n"
    (other / "qrels" / "dev.tsv").write_text(rows)
    found = prepare(make_options(other), lambda line: None)
    assert found.dev is not None and len(found.dev.number) == 1
    parts = parts_by_topic(found)
    assert (parts == parts[:, :1]).all()


@pytest.mark.parametrize("folds", [0, 25])
def test_none_are_asked_for_or_there_are_too_few_queries(collection, folds):
    found = prepare(make_options(collection, held_out_folds=folds), lambda line: None)
    assert found.train is not None
    assert parts_of(found.context, found.train, found.dev) is None
