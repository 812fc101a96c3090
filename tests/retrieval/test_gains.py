import numpy as np
import pytest
import tensorflow as tf

from retrieval.gains import gain_examples, one_step_gains
from retrieval.query_env import QueryEnvironment
from retrieval.query_table import Settings, make_table
from tests.retrieval.made_queries import Scores, make_query


@pytest.fixture(scope="module")
def env():
    index = Scores(documents=200, terms=12)
    queries = [make_query(n, index, candidates, 3) for n, candidates in enumerate((6, 2, 4))]
    return QueryEnvironment(make_table(queries, index, Settings("ndcg@10", 3, 6, 0.3)))


def compiled_gains(env, state):
    """As it is used: XLA clamps the places of columns that a query does not have."""
    return tf.function(one_step_gains, jit_compile=True, autograph=False)(env, state).numpy()


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
    found = gain_examples(env, 3, seed=1)
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
    one, same, other = (gain_examples(env, 3, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.allowed, same.allowed)
    assert (one.allowed != other.allowed).any()
