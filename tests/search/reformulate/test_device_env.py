import itertools

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.search.reformulate import device_env
from kytolly.search.reformulate.baselines import metric_per_query
from kytolly.search.reformulate.device_env import (
    MIN_WEIGHT,
    DeviceQueries,
    bounded_weights,
    is_query_term,
    kept_proposals,
    kept_weights,
    typed_weight,
    used_proposals,
)
from kytolly.search.reformulate.query import CANDIDATE_FEATURES, IN_QUERY, SearchRules
from kytolly.search.reformulate.table import make_table
from tests.search.reformulate.made_queries import (
    RULES,
    Scores,
    few_queries,
    make_documents,
    make_query,
)

NOTHING = tf.zeros([1, 0])


@pytest.fixture(scope="module")
def index():
    return Scores(documents=300, terms=12)


@pytest.fixture(scope="module")
def documents():
    return make_documents(300)


@pytest.fixture(scope="module")
def queries(index):
    """Relevant documents are among the best 40 for query and candidates together."""
    rng, made = np.random.default_rng(0), []
    for query in few_queries(index):
        terms = {**query.weights, **dict.fromkeys(query.candidates, 0.3)}
        best = np.argsort(-index.scores(terms), kind="stable")[:40]
        relevant = np.sort(rng.choice(best, len(query.relevant), replace=False))
        made.append(query._replace(relevant=relevant))
    return made


def environment(queries, index, documents, metric="ndcg@10", changes=None, **options):
    rules = RULES._replace(metric=metric, **(changes or {}))
    table = make_table(queries, index, documents, rules)
    return DeviceQueries(table, rules, **{"in_order": True, **options})


def full_search(query, index, documents, fusion, weights, metric):
    """The metric after a ranking of all documents; of equal scores the first document.

    A table keeps the columns of candidates and of the query's terms in half precision.
    """
    base = index.scores(query.weights).astype(np.float64)
    if query.excluded >= 0:
        base[query.excluded] = 0.0
    unit = base.max()
    scores = base / unit + fusion * documents.cosines(query.vector)
    given = {
        **dict.fromkeys(query.candidates, 1.0),
        **{t: -query.weights[t] for t in query.lowerable},
    }
    for (term, sign), weight in zip(given.items(), weights, strict=False):
        scores += weight * np.float16(sign * index.columns[term] / np.float32(unit))
    if query.excluded >= 0:
        scores[query.excluded] = -np.inf
    place = np.empty(len(scores), np.int32)
    place[np.argsort(-scores, kind="stable")] = np.arange(len(scores), dtype=np.int32)
    relevant = [doc for doc in query.relevant if doc != query.excluded]
    if not relevant:
        return 0.0
    return float(metric_per_query(metric, [place[relevant]], [len(query.relevant)])[0])


@pytest.mark.parametrize("metric", ["ndcg@10", "ap", "recall@40", "mrr@5"])
def test_value_equals_that_of_a_full_search(queries, index, documents, metric):
    env, rng = environment(queries, index, documents, metric), np.random.default_rng(1)
    changed = 0
    for fusion in (0.0, 0.5, 2.0):
        rows = np.arange(5)
        start = env.values(fusion, np.zeros((5, 6), np.float32))
        for _ in range(6):
            weights = rng.uniform(0, 1, (5, 6)).astype(np.float32)
            weights[rng.random((5, 6)) < 0.5] = 0.0
            found = env.value(tf.constant(rows), tf.fill([5], fusion), tf.constant(weights))
            expected = [
                full_search(query, index, documents, fusion, own, metric)
                for query, own in zip(queries, weights, strict=True)
            ]
            np.testing.assert_allclose(found, expected, atol=1e-6)
            changed += (np.abs(found - start) > 1e-3).sum()
    assert changed > 10


def test_the_reward_is_the_gain_minus_a_cost_for_each_term(queries, index, documents):
    env = environment(queries, index, documents, fusions=(0.0, 1.0), term_cost=0.01)
    weights = np.array([0.5, 0.2, 1.5, 0.005, 0.3, 0.9], np.float32)
    action = np.log(np.expm1(np.tile(weights, (10, 1))))
    state = env.reset(tf.zeros([10, 2]))
    assert state.query.numpy().tolist() == [0, 1, 2, 3, 4] * 2
    after, reward, over = env.step(state, tf.constant(action), tf.zeros([10, 0]))
    assert over.numpy().all() and after is state
    # Three terms may be added; a term of the query loses 0.9 at most, and does not count.
    used = [
        ([0.5, 0.2, 1.5, 0, 0.3, 0.9], 3),  # two of the query's
        ([0.5, 0.2, 1.5, 0, 0, 0.9], 3),  # one of the query's, the second
        ([0.5, 0, 1.5, 0, 0, 0.9], 3),
        ([0.5, 0, 1.5, 0, 0, 0.9], 3),
        ([0.5, 0, 1.5, 0, 0.3, 0.9], 3),  # the fourth and fifth are the query's
    ]
    for place, (fusion, number) in enumerate(itertools.product((0.0, 1.0), range(5))):
        query, (row, terms) = queries[number], used[number]
        kept = np.array(row)
        gain = full_search(query, index, documents, fusion, kept, "ndcg@10")
        gain -= full_search(query, index, documents, fusion, 0 * kept, "ndcg@10")
        assert float(reward[place]) == pytest.approx(gain - 0.01 * terms, abs=1e-5), number


def test_equal_scores_rank_by_place(documents):
    index = Scores(documents=4, terms=3)
    index.columns = {name: np.zeros(4, np.float32) for name in index.columns}
    index.columns["t0"][:] = (1, 1, 1, 0)
    index.columns["t1"][:] = (0, 0, 1, 0)
    query = make_query(0, index, candidates=1, relevant=1)._replace(
        weights={"t0": 1.0}, candidates=["t1"], relevant=np.array([2]), surfaces=("t1",)
    )
    env = environment([query], index, make_documents(4), "mrr@10")
    state = env.reset(tf.zeros([1, 2]))
    _, reward, _ = env.step(state, tf.zeros([1, 6]), NOTHING)  # of 1/3: two lay before it
    assert float(reward[0]) == pytest.approx(2 / 3)


def slow_kept(weights, own, most):
    result = np.zeros_like(weights)
    for row, values in enumerate(weights):
        added = [place for place in range(len(values)) if not own[row, place]]
        added = sorted(added, key=lambda n: (-values[n], n))[:most]
        for place in [*added, *np.flatnonzero(own[row])]:
            if values[place] >= MIN_WEIGHT:
                result[row, place] = values[place]
    return result


def test_at_most_so_many_weights_are_kept_and_of_equal_ones_the_first():
    rng = np.random.default_rng(0)
    weights = np.round(rng.uniform(-0.02, 0.3, (200, 8)), 2).astype(np.float32)  # many tie
    weights[:3] = np.array([[0.1], [0.0], [MIN_WEIGHT]])
    own = rng.random((200, 8)) < 0.3
    own[:100] = False
    for most in (1, 3, 8, 20):
        expected = slow_kept(weights, own, most)
        np.testing.assert_array_equal(kept_weights(tf.constant(weights), own, most), expected)
        np.testing.assert_array_equal(kept_proposals(weights, own, most), expected)
        assert (expected[:100] > 0).sum(axis=1).max() <= most


def test_typed_words_keep_their_share():
    """At a share of 0.75 a word loses at most 0.25, and added terms get 0.25 of what was typed."""
    in_query = np.array([[False, False, True, True]] * 3)
    typed = np.array([2.0, 2.0, 4.0], np.float32)
    weights = np.array(
        [[0.6, 0.4, 0.9, 0.1], [0.3, 0.1, 0.2, 0.0], [1.5, 0.02, 0.3, 0.3]], np.float32
    )
    # Rows: 1.0 added, 0.5 allowed: half of each. 0.4 added: as it is. 1.52 added, 1 allowed.
    expected = np.array(
        [[0.3, 0.2, 0.25, 0.1], [0.3, 0.1, 0.2, 0.0], [1.5 / 1.52, 0.02 / 1.52, 0.25, 0.25]]
    )
    np.testing.assert_allclose(bounded_weights(weights, in_query, typed, 0.75), expected, atol=1e-6)
    # A term that is scaled to less than MIN_WEIGHT is left out: 0.02 * 0.5 / 1.52 is one.
    half = bounded_weights(weights[2:], in_query[2:], typed[2:] / 2, 0.75)
    np.testing.assert_allclose(half, [[1.5 * 0.5 / 1.52, 0.0, 0.25, 0.25]], atol=1e-6)


def test_bounds_are_the_same_in_numpy():
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (50, 8, len(CANDIDATE_FEATURES))).astype(np.float32)
    features[..., IN_QUERY] = rng.random((50, 8)) < 0.3
    state = rng.uniform(0.1, 0.6, (50, 15)).astype(np.float32)
    weights = rng.uniform(0, 0.9, (50, 8)).astype(np.float32)
    in_query, rules = is_query_term(features), SearchRules("ndcg@10", 4, 8, 64, (0.6, 0.3))
    kept = kept_weights(tf.constant(weights), in_query, 4)
    for share, fusion in ((0.6, 0.0), (0.3, 0.25), (0.3, 2.0)):
        expected = bounded_weights(kept, in_query, typed_weight(state), share).numpy()
        used = used_proposals(weights, features, state, rules, fusion)
        np.testing.assert_allclose(used, expected, atol=1e-6)
        assert (expected != kept.numpy()).any()
    free = rules._replace(typed_shares=(0.6, None))
    np.testing.assert_array_equal(used_proposals(weights, features, state, free, 1.0), kept)


def test_searches_with_cosines_have_a_bound_of_their_own(queries, index, documents):
    rng = np.random.default_rng(1)
    env = environment(queries, index, documents, fusions=(0.0, 0.5))
    rows, fusion = tf.constant([0, 1, 2, 0, 1, 2]), tf.constant([0.0] * 3 + [0.5] * 3)
    weights = tf.constant(rng.uniform(0.2, 0.9, (6, env.candidates)), tf.float32)
    env.rules = env.rules._replace(typed_shares=(0.9, 0.5))
    mixed = env.used_weights(rows, weights, fusion).numpy()
    for share, part in ((0.9, slice(0, 3)), (0.5, slice(3, 6))):
        env.rules = env.rules._replace(typed_shares=(share, share))
        alone = env.used_weights(rows, weights, fusion).numpy()
        np.testing.assert_array_equal(mixed[part], alone[part])
    env.rules = env.rules._replace(typed_shares=(None, 0.5))
    half_free = env.used_weights(rows, weights, fusion).numpy()
    assert (half_free[:3] > mixed[:3]).any()
    np.testing.assert_array_equal(half_free[3:], mixed[3:])


def test_observations_do_not_depend_on_judgments(index, documents):
    queries = [make_query(n, index, relevant=n) for n in range(5)]
    blind = [query._replace(relevant=np.zeros(0, np.int64)) for query in queries]
    one, other = (
        env.observe(env.reset(tf.zeros([5, 2])))
        for env in (environment(part, index, documents) for part in (queries, blind))
    )
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


def test_the_state_ends_with_the_weight_of_the_cosines(queries, index, documents):
    env = environment(queries, index, documents, fusions=(0.0, 0.5))
    seen = env.observe(env.reset(tf.zeros([7, 2])))
    assert seen["state"].numpy()[:, -1].tolist() == [0.0] * 5 + [0.5] * 2
    np.testing.assert_array_equal(seen["state"][5, :-1], queries[0].state_features)
    np.testing.assert_array_equal(seen["candidates"][4, :5], queries[4].candidate_features)
    assert not seen["candidates"].numpy()[4, 5:].any()


def test_padding_changes_nothing(queries, index, documents):
    narrow = environment(queries[:1], index, documents, "ap")
    wide = environment(queries, index, documents, "ap", changes={"max_candidates": 9})
    action = np.random.default_rng(0).normal(2.0, 2.0, (1, 9)).astype(np.float32)
    _, reward, _ = narrow.step(narrow.reset(tf.zeros([1, 2])), tf.constant(action[:, :6]), NOTHING)
    action[:, 6:] = -20.0
    _, same, _ = wide.step(wide.reset(tf.zeros([1, 2])), tf.constant(action), NOTHING)
    assert float(reward[0]) == pytest.approx(float(same[0]), rel=1e-5) and float(same[0]) != 0.0


def test_queries_and_fusions_are_drawn_or_come_in_order(queries, index, documents):
    env = environment(queries, index, documents, fusions=(0.0, 1.0), in_order=False)
    draws = tf.constant([[0.0, 0.0], [0.5, 0.49], [0.999, 0.5], [1.0, 1.0]])
    drawn = env.reset(draws)
    assert drawn.query.numpy().tolist() == [0, 2, 4, 4]
    assert drawn.fusion.numpy().tolist() == [0, 0, 1, 1]
    env.in_order = True
    ordered = env.reset(tf.zeros([12, 2]))
    assert ordered.query.numpy().tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert ordered.fusion.numpy().tolist() == [0] * 5 + [1] * 5 + [0] * 2


def test_values_of_all_queries_are_those_of_each(queries, index, documents, monkeypatch):
    env = environment(queries, index, documents)
    weights = np.random.default_rng(0).uniform(0, 1, (5, 6)).astype(np.float32)
    whole = env.values(0.5, weights)
    monkeypatch.setattr(device_env, "BATCH", 2)
    np.testing.assert_array_equal(env.values(0.5, weights), whole)
    np.testing.assert_allclose(env.start_value, env.values(0.0, 0 * weights))


def test_it_keeps_the_contract_of_environments_in_tensor_code(queries, index, documents):
    check_environment(environment(queries, index, documents, fusions=(0.0, 1.0)))
