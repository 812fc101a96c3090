import itertools

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.spec import ACTION_MASK
from kytolly.reformulation.device_env import DeviceQueries, best_scores
from kytolly.reformulation.query import EpisodeRules
from kytolly.reformulation.scoring import metric_per_query
from kytolly.reformulation.table import make_table
from tests.reformulation.made_queries import Scores, few_queries, make_query

NOTHING = tf.zeros([1, 0])


@pytest.fixture(scope="module")
def index():
    return Scores(documents=300, terms=12)


@pytest.fixture(scope="module")
def queries(index):
    return few_queries(index)


def environment(queries, index, metric="ndcg@10", **changes):
    rules = EpisodeRules(metric, 3, 6, 0.3)._replace(**changes)
    return DeviceQueries(make_table(queries, index, rules), in_order=True)


def brute_force(query, index, weights, metric):
    """The metric after a full ranking of all documents; of equal scores the first document."""
    scores = index.scores(weights)
    if query.excluded >= 0:
        scores[query.excluded] = -np.inf
    place = np.empty(len(scores), np.int32)
    place[np.argsort(-scores, kind="stable")] = np.arange(len(scores), dtype=np.int32)
    relevant = [doc for doc in query.relevant if doc != query.excluded]
    if not len(query.relevant):
        return 0.0, scores
    return float(metric_per_query(metric, [place[relevant]], [len(query.relevant)])[0]), scores


@pytest.mark.parametrize("metric", ["ndcg@10", "ap", "recall@40", "mrr@5"])
def test_value_and_reward_equal_those_of_a_full_ranking(queries, index, metric):
    env, rng = environment(queries, index, metric), np.random.default_rng(1)
    for number, query in itertools.product(range(len(queries)), range(8)):
        query = queries[number]
        state, weights = env.begin(tf.constant([number])), dict(query.weights)
        before, scores = brute_force(query, index, weights, metric)
        assert float(state.value[0]) == pytest.approx(before, abs=1e-6)
        for place in rng.permutation(len(query.candidates))[:3]:
            state, reward, _ = env.step(state, tf.constant([place], tf.int32), NOTHING)
            weights[query.candidates[place]] = 0.3
            value, scores = brute_force(query, index, weights, metric)
            assert float(state.value[0]) == pytest.approx(value, abs=1e-6)
            assert float(reward[0]) == pytest.approx(value - before, abs=1e-6)
            best = [float(score[0]) for score in best_scores(state.scores, 3)]
            np.testing.assert_allclose(best, np.sort(scores)[::-1][:3], rtol=1e-6)
            before = value


def test_equal_scores_rank_by_place():
    index = Scores(documents=4, terms=3)
    index.columns = {name: np.zeros(4, np.float32) for name in index.columns}
    index.columns["t0"][:] = (1, 1, 1, 0)
    index.columns["t1"][:] = (0, 0, 1, 0)
    query = make_query(0, index, candidates=1, relevant=1)._replace(
        weights={"t0": 1.0}, candidates=["t1"], relevant=np.array([2]), surfaces=("t1",)
    )
    env = environment([query], index, "mrr@10")
    state = env.begin(tf.constant([0]))
    assert float(state.value[0]) == pytest.approx(1 / 3)  # two equal scores lie before it
    state, reward, over = env.step(state, tf.constant([0]), NOTHING)
    assert float(state.value[0]) == 1.0 and bool(over[0])  # and nothing is left to add
    assert float(reward[0]) == pytest.approx(2 / 3)


def test_stop_ends_the_episode_and_changes_nothing(queries, index):
    env = environment(queries, index)
    state = env.begin(tf.constant([0]))
    after, reward, over = env.step(state, tf.constant([env.candidates]), NOTHING)
    assert bool(over[0]) and float(reward[0]) == 0.0
    for one, other in zip(state, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_mask_forbids_padding_and_what_was_added(queries, index):
    env = environment(queries, index)
    state = env.begin(tf.constant([4]))  # 3 candidates of 6
    assert env.observe(state)[ACTION_MASK].numpy()[0].tolist() == [True] * 3 + [False] * 3 + [True]
    state, _, over = env.step(state, tf.constant([1]), NOTHING)
    mask = env.observe(state)[ACTION_MASK].numpy()[0].tolist()
    assert mask == [True, False, True, False, False, False, True] and not bool(over[0])


def test_the_last_allowed_term_ends_the_episode(queries, index):
    env = environment(queries, index, max_terms=2)
    state, _, over = env.step(env.begin(tf.constant([0])), tf.constant([0]), NOTHING)
    assert not bool(over[0])
    assert bool(env.step(state, tf.constant([1]), NOTHING)[2][0])


def test_observations_do_not_depend_on_judgments(index):
    queries = [make_query(n, index, relevant=n) for n in range(5)]
    judged = environment(queries, index)
    blind = environment([q._replace(relevant=np.zeros(0, np.int64)) for q in queries], index)
    states = [env.begin(tf.range(len(queries))) for env in (judged, blind)]
    for place in (0, 5, 2):
        one, other = (
            env.observe(state) for env, state in zip((judged, blind), states, strict=True)
        )
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], name)
        action = tf.fill([len(queries)], place)
        states = [
            env.step(state, action, tf.zeros([len(queries), 0]))[0]
            for env, state in zip((judged, blind), states, strict=True)
        ]


def test_the_cosine_is_that_of_the_query_with_its_added_terms(index):
    query = make_query(0, index)
    rng = np.random.default_rng((0, 0))
    rng.permutation(list(index.columns))
    vectors = rng.normal(size=(7, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    env = environment([query], index)
    state, _, _ = env.step(env.begin(tf.constant([0])), tf.constant([2]), NOTHING)
    whole = vectors[0] + 0.3 * vectors[3]
    cosine = env.observe(state)["candidates"].numpy()[0, :, -1]
    np.testing.assert_allclose(cosine, vectors[1:] @ whole / np.linalg.norm(whole), rtol=1e-4)


def test_padding_changes_nothing(queries, index):
    narrow = environment(queries[:1], index)
    wide = environment(queries, index, max_candidates=9)
    one, other = (env.begin(tf.constant([0])) for env in (narrow, wide))
    for place in (3, 0, 5):
        one, reward, over = narrow.step(one, tf.constant([place]), NOTHING)
        other, same, as_well = wide.step(other, tf.constant([place]), NOTHING)
        assert float(reward[0]) == float(same[0]) and bool(over[0]) == bool(as_well[0])
        seen = wide.observe(other)
        np.testing.assert_array_equal(narrow.observe(one)["candidates"], seen["candidates"][:, :6])
        assert not seen["candidates"].numpy()[:, 6:].any()


def test_random_queries_and_queries_in_order(queries, index):
    table = make_table(queries, index, EpisodeRules("ndcg@10", 3, 6, 0.3))
    drawn = DeviceQueries(table).reset(tf.constant([[0.0], [0.5], [0.999], [1.0]]))
    assert drawn.query.numpy().tolist() == [0, 2, 4, 4]
    in_order = DeviceQueries(table, in_order=True).reset(tf.zeros([7, 1]))
    assert in_order.query.numpy().tolist() == [0, 1, 2, 3, 4, 0, 1]


def test_it_keeps_the_contract_of_environments_in_tensor_code(queries, index):
    check_environment(environment(queries, index))
