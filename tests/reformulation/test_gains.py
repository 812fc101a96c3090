import numpy as np
import pytest
import tensorflow as tf

from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.pool import make_pool
from kytolly.reformulation.query import EpisodeRules
from kytolly.reformulation.table import make_table
from tests.reformulation.made_queries import Scores, make_query


@pytest.fixture(scope="module")
def env():
    index = Scores(documents=200, terms=12)
    queries = [make_query(n, index, candidates, 3) for n, candidates in enumerate((6, 2, 4))]
    return DeviceQueries(make_table(queries, index, EpisodeRules("ndcg@10", 3, 6, 0.3)))


def compiled_gains(env, state):
    """As it is used: XLA clamps the places of columns that a query does not have."""
    return tf.function(env.one_step_gains, jit_compile=True, autograph=False)(state).numpy()


def test_a_gain_is_the_reward_of_that_step(env):
    state = env.begin(tf.constant([0, 1, 2]))
    state, _, _ = env.step(state, tf.constant([1, 1, 1]), tf.zeros([3, 0]))
    gains = compiled_gains(env, state)
    assert gains.shape == (3, 7) and not gains[:, -1].any()  # STOP
    allowed = state.allowed.numpy()
    assert not gains[:, :-1][~allowed].any() and gains.any()
    for query, action in zip(*np.nonzero(allowed), strict=True):
        action = np.where(np.arange(3) == query, action, 6)  # the others stop
        _, reward, _ = env.step(state, tf.constant(action, tf.int32), tf.zeros([3, 0]))
        np.testing.assert_allclose(gains[query, action[query]], reward[query], atol=1e-6)


def test_examples_go_along_one_episode_of_each_query(env):
    found = env.gain_examples(3, seed=1)
    # Query 1 has two candidates, so it ends after them; the others add three terms.
    pairs = sorted(zip(found.query.tolist(), found.added.tolist(), strict=True))
    assert pairs == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    for row in range(len(found.query)):
        left = [6, 2, 4][found.query[row]] - found.added[row]
        assert found.allowed[row].sum() == left + 1
        assert not found.gain[row][~found.allowed[row]].any()
    first = found.added == 0
    expected = compiled_gains(env, env.begin(tf.constant(found.query[first])))
    np.testing.assert_allclose(found.gain[first], expected, atol=1e-6)


def test_the_seed_decides_which_terms_are_added(env):
    one, same, other = (env.gain_examples(3, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.allowed, same.allowed)
    assert (one.allowed != other.allowed).any()


def test_gains_on_the_host_are_those_of_the_device(env):
    index = Scores(documents=200, terms=12)
    queries = [make_query(n, index, candidates, 3) for n, candidates in enumerate((6, 2, 4))]
    for metric in ("ndcg@10", "ap"):
        rules = EpisodeRules(metric, 3, 6, 0.25)  # so that sums are exact in any order
        device = DeviceQueries(make_table(queries, index, rules))
        host = HostQueries(queries, index, rules)
        found = host.gain_examples(3, seed=1, passes=2)
        pairs = sorted(zip(found.query.tolist(), found.added.tolist(), strict=True))
        once = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
        assert pairs == sorted(once * 2)
        first = found.added == 0
        expected = compiled_gains(device, device.begin(tf.constant(found.query[first])))
        np.testing.assert_allclose(found.gain[first], expected, atol=1e-6)
        assert found.gain.any()
        # Later states: what a step there brings, by search.
        state = host.begin(np.array([0, 2]))
        state, _, _ = host.step(state, np.array([4, 1]))
        pools = [make_pool(query, index, rules) for query in (queries[0], queries[2])]
        gain = host.one_step_gains(state, pools)
        for row, action in zip(*np.nonzero(state.allowed), strict=True):
            both = np.full(2, 6)
            both[row] = action
            reward = host.step(state, both)[1][row]
            assert gain[row, action] == pytest.approx(reward, abs=1e-6)
        assert not gain[0, 4] and not gain[:, -1].any()


def test_passes_on_the_host_do_not_depend_on_how_many_pools_are_held(env, monkeypatch):
    index = Scores(documents=200, terms=12)
    queries = [make_query(n, index, 6, 3) for n in range(3)]
    host = HostQueries(queries, index, EpisodeRules("ndcg@10", 3, 6, 0.25))
    whole = host.gain_examples(1, passes=2)
    monkeypatch.setattr("kytolly.reformulation.host_env.POOL_BYTES", 1)
    apart = host.gain_examples(1, passes=2)
    assert whole.query.tolist() == [0, 1, 2] * 2 and apart.query.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(whole.gain[:3], apart.gain[::2])
