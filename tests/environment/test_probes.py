"""The known values of the probes solve the Bellman equation of what they do."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.spec import ACTION_MASK, Box, Discrete, MultiDiscrete, action_spec
from kytolly.environment.tensor.stepping import (
    reset_all,
    step_and_reset,
    uniforms_per_step,
)
from tests.helpers import q_learning_probes as probe
from tests.helpers.on_policy_probes import (
    FORBIDDEN_REWARD,
    PPO_PROBES,
    ActionKinds,
    ContinuousAction,
    DictObservation,
    MaskedAction,
    MaskedKinds,
    ValueProbe,
)
from tests.helpers.q_learning_probes import PROBES, ProbeEnvironment

NUM_ENVS, STEPS = 16, 40


def random_actions(space, rng):
    if isinstance(space, Box):
        return rng.uniform(space.low, space.high, (NUM_ENVS, len(space.low))).astype(np.float32)
    if isinstance(space, MultiDiscrete):
        return rng.integers(space.counts, size=(NUM_ENVS, len(space.counts))).astype(np.int32)
    return rng.integers(space.count, size=NUM_ENVS).astype(np.int32)


def play(make, choose):
    """Rows of play: obs, action, reward, terminated, truncated, next_obs."""
    env, rng = make(), np.random.default_rng(5)
    draw = lambda n: tf.constant(rng.random((NUM_ENVS, n)), tf.float32)  # noqa: E731
    state, obs = reset_all(env, draw(env.reset_uniforms))
    rows = []
    for _ in range(STEPS):
        action = tf.constant(choose(obs, rng))
        assert action_spec(env.spec.action, NUM_ENVS).is_compatible_with(action)
        state, after = step_and_reset(env, state, action, draw(uniforms_per_step(env)))
        rows.append((obs, action, *after[1:5]))
        obs = after.obs
    return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *rows)


@functools.cache
def random_play(make):
    return play(make, lambda obs, rng: random_actions(make.spec.action, rng))


@pytest.mark.parametrize("make", [*PROBES, MaskedAction, DictObservation])
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_true_q_solves_the_bellman_equation_of_what_the_environment_does(make, gamma):
    env = make()
    check_environment(env)
    obs, action, reward, terminated, truncated, next_obs = random_play(make)
    # a time limit does not close the equation: only a termination does
    if isinstance(env, ValueProbe):
        value = env.true_value(next_obs, gamma)
    else:
        value = env.true_q(next_obs, gamma).max(axis=1)
        assert isinstance(env, ProbeEnvironment)
        limited = make in (probe.EndlessReward, probe.Ring)
        assert truncated.any() == limited and terminated.any() == (not limited)
    q = env.true_q(obs, gamma)[np.arange(len(action)), action]
    np.testing.assert_allclose(q, reward + gamma * np.where(terminated, 0.0, value), rtol=1e-5)
    np.testing.assert_array_equal(np.unique(action), np.arange(env.spec.num_actions))


@pytest.mark.parametrize(
    ("make", "obs", "q"),
    [
        (probe.ConstantReward, [[0.0]], [[1.0]]),
        (probe.ObservationReward, [[-1.0], [1.0]], [[-1.0], [1.0]]),
        (probe.DelayedReward, [[0.0], [1.0]], [[0.9], [1.0]]),
        (probe.BestAction, [[0.0]], [[-1.0, 1.0]]),
        (probe.ObservationAction, [[-1.0], [1.0]], [[1.0, -1.0], [-1.0, 1.0]]),
        (probe.EndlessReward, [[0.0]], [[10.0]]),
        # 3; 0.5 + 0.9 * 3 = 3.2; 4 + 0.9 * 3.2 = 6.88; -2 + 0.9 * 6.88 = 4.192; ... = 4.7728
        (probe.Corridor, np.eye(5), [[4.7728], [4.192], [6.88], [3.2], [3.0]]),
        # (3 - 0.9 + 0.81 * 0.5) / (1 - 0.729) = 2.505 / 0.271, and so on around
        (probe.Ring, np.eye(3), [[9.243542], [6.937269], [8.819188]]),
    ],
)
def test_known_values(make, obs, q):
    np.testing.assert_allclose(make().true_q(np.array(obs), 0.9), q, rtol=1e-6)


@pytest.mark.parametrize("make", PPO_PROBES)
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_true_value_is_what_the_best_action_earns_and_no_other_action_earns_more(make, gamma):
    env = make()
    check_environment(env)
    assert isinstance(env, ValueProbe)

    def values(rows):
        obs, _, reward, terminated, _, next_obs = rows
        follows = np.where(terminated, 0.0, env.true_value(next_obs, gamma))
        return env.true_value(obs, gamma), reward + gamma * follows

    value, earned = values(play(make, lambda obs, rng: env.best_action(obs)))
    np.testing.assert_allclose(earned, value, rtol=1e-5, atol=1e-6)
    value, earned = values(random_play(make))
    assert np.all(earned <= value + 1e-5) and np.mean(earned < value - 1e-3) > 0.3


PLACES = {"place": np.eye(3)}
SIGNS = {
    "sign": np.array([[-1.0], [-1.0], [1.0], [1.0]]),
    "picture": np.eye(2)[[0, 1, 0, 1]][:, :, None],
}


@pytest.mark.parametrize(
    ("make", "obs", "value", "action"),
    [
        # 4; -1 + 0.9 * 4 = 2.6; 2 + 0.9 * 2.6 = 4.34. Without the mask: 2 + 0.9 * 7.6 and so on.
        (MaskedAction, PLACES, [4.34, 2.6, 4.0], [2, 1, 3]),
        # 0 + 1; 1 + 2; 1 + 0
        (MaskedKinds, PLACES, [1.0, 3.0, 1.0], [[0, 2], [1, 0], [1, 1]]),
        (ActionKinds, np.eye(3), [1.0, 1.0, 1.0], [[0, 2], [1, 0], [1, 1]]),
        (ContinuousAction, [[-1.0], [0.4]], [0.0, 0.0], [[-1.5, 1.5], [0.6, 0.1]]),
        (DictObservation, SIGNS, [1.0] * 4, [1, 0, 0, 1]),
    ],
)
def test_known_values_and_actions(make, obs, value, action):
    env = make()
    np.testing.assert_allclose(env.true_value(obs, 0.9), value, rtol=1e-6)
    best = env.best_action(obs)
    np.testing.assert_allclose(best, action, rtol=1e-6)
    assert action_spec(env.spec.action, len(action)).is_compatible_with(tf.constant(best))


@pytest.mark.parametrize("make", [MaskedAction, MaskedKinds])
def test_a_forbidden_action_shows_in_the_reward_and_no_allowed_one_does(make):
    env = make()
    obs, action, reward, *_ = random_play(make)
    counts = (env.spec.action.count,) if make is MaskedAction else env.spec.action.counts
    choices = action.reshape(len(action), -1) + np.cumsum((0, *counts[:-1]))
    allowed = np.take_along_axis(obs[ACTION_MASK], choices, axis=1).all(axis=1)
    np.testing.assert_array_equal(reward == FORBIDDEN_REWARD, ~allowed)
    assert 0.2 < allowed.mean() < 0.8 and reward[allowed].min() >= -1.0


def test_the_action_that_pays_most_is_forbidden_somewhere_and_a_maximum_over_all_shows():
    # last: 4; second: -1 + 2 = 1; first: 2 + 0.5. The rest is what being forbidden leaves.
    expected = [[1.5, -0.5, 2.5, -9.5], [-8.0, 1.0, -8.0, -8.0], [1.0, -10.0, -10.0, 4.0]]
    np.testing.assert_allclose(MaskedAction().true_q(PLACES, 0.5), expected)


def test_every_action_space_and_observation_form_is_among_them():
    specs = [make.spec for make in PPO_PROBES]
    forms = {(type(spec.action), isinstance(spec.obs, dict), spec.masked) for spec in specs}
    assert forms >= {(Discrete, True, True), (MultiDiscrete, True, True), (Discrete, True, False)}
    assert forms >= {(MultiDiscrete, False, False), (Box, False, False)}
