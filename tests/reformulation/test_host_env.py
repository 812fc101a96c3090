import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.utils.env_checker import data_equivalence

from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.spec import ACTION_MASK
from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.query import EpisodeRules
from kytolly.reformulation.search_cache import SearchCache
from kytolly.reformulation.table import make_table
from tests.reformulation.made_queries import Scores, few_queries

# A power of two, so that sums of these scores are exact in any order and ties are ties.
RULES = EpisodeRules("ndcg@10", max_terms=3, max_candidates=6, weight=0.25)


@pytest.fixture(scope="module")
def index():
    return Scores(documents=300, terms=12)


@pytest.fixture(scope="module")
def queries(index):
    return few_queries(index)


@pytest.mark.parametrize("metric", ["ndcg@10", "ap", "recall@40", "mrr@5"])
def test_episodes_are_those_of_the_device(queries, index, metric):
    rules = RULES._replace(metric=metric)
    device = DeviceQueries(make_table(queries, index, rules))
    host = HostQueries(queries, index, rules)
    assert host.spec == device.spec
    rng, ended = np.random.default_rng(0), set()
    for _ in range(12):
        rows = rng.integers(len(queries), size=16)
        theirs, ours = device.begin(tf.constant(rows, tf.int32)), host.begin(rows)
        over = np.zeros(16, bool)
        while not over.all():
            expected, seen = device.observe(theirs), host.observe(ours)
            for name in expected:
                np.testing.assert_allclose(seen[name], expected[name], atol=1e-5, err_msg=name)
                assert seen[name].dtype == expected[name].numpy().dtype
            np.testing.assert_allclose(ours.value, theirs.value, atol=1e-6)
            noise = np.where(seen[ACTION_MASK], rng.random((16, 7)), 0.0)
            action = np.where(over, 6, noise.argmax(axis=1)).astype(np.int32)
            theirs, reward, ends = device.step(theirs, tf.constant(action), tf.zeros([16, 0]))
            ours, same, as_well = host.step(ours, action)
            np.testing.assert_allclose(same, reward, atol=1e-6)
            np.testing.assert_array_equal(as_well, ends)
            over |= as_well
            ended |= set(ours.added[over].tolist())
    assert ended == {0, 1, 2, 3} and host.search.hits > 0


def test_a_search_is_made_once_for_a_set_of_terms(queries, index):
    cache = SearchCache(queries, index, RULES, entries=3)
    value, best = cache(
        np.array([0, 0, 3, 0]), np.array([[2, 5, -1], [5, 2, -1], [2, 5, -1], [2, -1, -1]])
    )
    assert (cache.hits, cache.misses) == (1, 3)
    assert value[0] == value[1] and (best[0] == best[1]).all() and (best[0] != best[2]).any()
    cache(np.array([3]), np.array([[5, 2, -1]]))  # was used last now
    assert (cache.hits, cache.misses, cache.hit_rate) == (2, 3, 0.4)
    cache(np.array([1]), np.array([[0, -1, -1]]))
    assert len(cache) == 3
    cache(np.array([3, 0]), np.array([[2, 5, -1], [2, 5, -1]]))
    assert (cache.hits, cache.misses) == (3, 5)  # of query 0, {2, 5} was forgotten


def test_more_new_searches_at_once_than_are_remembered(queries, index):
    cache = SearchCache(queries, index, RULES, entries=1)
    chosen = np.array([[place, -1, -1] for place in range(6)])
    value, _ = cache(np.full(6, 3), chosen)
    alone = [
        SearchCache(queries, index, RULES)(np.array([3]), row[np.newaxis])[0] for row in chosen
    ]
    np.testing.assert_array_equal(value, np.concatenate(alone))
    assert len(cache) == 1 and len(set(value.tolist())) > 1


def test_an_action_that_is_not_allowed_is_refused(queries, index):
    host = HostQueries(queries, index, RULES)
    state, _, _ = host.step(host.begin(np.array([0, 4])), np.array([1, 1]))
    with pytest.raises(ValueError, match="action 1 of environment 0 is no candidate"):
        host.step(state, np.array([1, 0]))
    with pytest.raises(ValueError, match="action 5 of environment 1"):
        host.step(state, np.array([0, 5]))


def test_gymnasium_sees_a_vector_environment(queries, index):
    env = HostQueries(queries, index, RULES).for_trainer(4)()
    obs, _ = env.reset(seed=3)
    assert obs in env.observation_space
    first = env._state.query.copy()
    assert data_equivalence(obs, env.reset(seed=3)[0])
    stop = env.queries.candidates
    obs, reward, over, truncated, _ = env.step(np.array([stop, 0, stop, 0]))
    assert over[[0, 2]].all() and not truncated.any() and not reward[[0, 2]].any()
    with pytest.raises(ValueError, match="expected a reset"):
        env.step(np.array([stop] * 4))
    queries_before = env._state.query.copy()
    env.reset(options={"reset_mask": over})
    assert (env._state.query == queries_before)[~over].all()
    assert not env._state.added[over].any() and (env._state.chosen[over] == -1).all()
    assert set(first.tolist()) <= set(range(5))
    assert isinstance(env, gymnasium.vector.VectorEnv)


def test_the_host_loop_plays_it(queries, index):
    host = HostQueries(queries, index, RULES, in_order=True)
    env = make_host_env(host.for_trainer(len(queries)), masks=True)
    assert env.spec.obs == host.spec.obs and env.spec.action == host.spec.action
    obs = env.reset()
    np.testing.assert_array_equal(obs["state"], host.observe(host.begin(np.arange(5)))["state"])
    total, rng = np.zeros(5), np.random.default_rng(0)
    for _ in range(3):
        noise = np.where(obs[ACTION_MASK][:, :-1], rng.random((5, 6)), 0.0)
        step = env.step(noise.argmax(axis=1))
        total, obs = total + step.reward, step.obs
    # Query 1 has one candidate: its episodes take one step, and it began three.
    assert step.ended.all() and step.episode_length.tolist() == [3, 1, 3, 3, 3]
    np.testing.assert_allclose(step.episode_return[[0, 2, 3, 4]], total[[0, 2, 3, 4]], atol=1e-6)
    assert step.next_obs[ACTION_MASK].all() and not step.obs["state"][:, 3].any()


def test_playing_greedily_is_what_the_steps_say(queries, index):
    host, device = (
        HostQueries(queries, index, RULES),
        DeviceQueries(make_table(queries, index, RULES), in_order=True),
    )
    actions, gains = host.play(
        lambda obs: np.concatenate([obs["candidates"][..., 0], np.zeros((5, 1))], axis=-1)
    )
    state = device.begin(tf.range(5))
    first = state.value
    for place in actions.T:
        action = np.where(place < 0, 6, place)
        state, _, _ = device.step(state, tf.constant(action, tf.int32), tf.zeros([5, 0]))
    np.testing.assert_allclose(gains, state.value - first, atol=1e-6)
    assert (actions >= 0).any() and (actions < 0).any()
