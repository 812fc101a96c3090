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
from tests.helpers import on_policy_probes as on_policy
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

NUM_ENVS, STEPS = 32, 20


def random_actions(space, rng):
    if isinstance(space, Box):
        return rng.uniform(space.low, space.high, (NUM_ENVS, len(space.low))).astype(np.float32)
    if isinstance(space, MultiDiscrete):
        return rng.integers(space.counts, size=(NUM_ENVS, len(space.counts))).astype(np.int32)
    return rng.integers(space.count, size=NUM_ENVS).astype(np.int32)


@functools.cache
def step_program(make):
    """The compiled step of a probe; one for all tests."""
    env = make()
    return tf.function(
        lambda state, action, uniform: step_and_reset(env, state, action, uniform),
        jit_compile=True,
        autograph=False,
    )


def play(make, choose):
    """Rows of play: obs, action, reward, terminated, next_obs."""
    env, step, rng = make(), step_program(make), np.random.default_rng(5)
    draw = lambda n: tf.constant(rng.random((NUM_ENVS, n)), tf.float32)  # noqa: E731
    state, obs = reset_all(env, draw(env.reset_uniforms))
    rows = []
    for _ in range(STEPS):
        action = tf.constant(choose(obs, rng))
        assert action_spec(env.spec.action, NUM_ENVS).is_compatible_with(action)
        state, after = step(state, action, draw(uniforms_per_step(env)))
        rows.append((obs, action, after.reward, after.terminated, after.next_obs))
        obs = after.obs
    return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *rows)


@functools.cache
def random_play(make):
    return play(make, lambda obs, rng: random_actions(make.spec.action, rng))


@pytest.mark.parametrize("make", PPO_PROBES)
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_true_value_is_what_the_best_action_earns_and_no_other_action_earns_more(make, gamma):
    env = make()
    check_environment(env)
    assert isinstance(env, ValueProbe)

    def values(rows):
        obs, _, reward, terminated, next_obs = rows
        follows = np.where(terminated, 0.0, env.true_value(next_obs, gamma))
        return env.true_value(obs, gamma), reward + gamma * follows

    value, earned = values(play(make, lambda obs, rng: env.best_action(obs)))
    np.testing.assert_allclose(earned, value, rtol=1e-5, atol=1e-6)
    value, earned = values(random_play(make))
    assert np.all(earned <= value + 1e-5) and np.mean(earned < value - 1e-3) > 0.3


@pytest.mark.parametrize("make", [MaskedAction, DictObservation])
def test_true_q_solves_the_bellman_equation_forbidden_actions_included(make):
    env = make()
    obs, action, reward, terminated, next_obs = random_play(make)
    follows = np.where(terminated, 0.0, env.true_value(next_obs, 0.9))
    q = env.true_q(obs, 0.9)[np.arange(len(action)), action]
    np.testing.assert_allclose(q, reward + 0.9 * follows, rtol=1e-5)
    np.testing.assert_array_equal(np.unique(action), np.arange(env.spec.num_actions))


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
    found = env.best_action(obs)
    np.testing.assert_allclose(found, action, rtol=1e-6)
    assert action_spec(env.spec.action, len(action)).is_compatible_with(tf.constant(found))


@pytest.mark.parametrize("make", [MaskedAction, MaskedKinds])
def test_a_forbidden_action_shows_in_the_reward_and_no_allowed_one_does(make):
    env = make()
    obs, action, reward, *_ = random_play(make)
    counts = env.spec.action.counts if make is MaskedKinds else (env.spec.num_actions,)
    starts = np.cumsum((0, *counts[:-1]))
    choices = action.reshape(len(action), -1) + starts
    allowed = np.take_along_axis(obs[ACTION_MASK], choices, axis=1).all(axis=1)
    np.testing.assert_array_equal(reward == FORBIDDEN_REWARD, ~allowed)
    assert 0.2 < allowed.mean() < 0.8 and reward[allowed].min() >= -1.0


def test_the_action_that_pays_most_is_forbidden_somewhere_and_a_maximum_over_all_shows():
    env = MaskedAction()
    mask = env.observe(tf.eye(3))[ACTION_MASK].numpy()
    assert not mask[:, 3].all() and mask[:, 3].any() and not mask.all(axis=1).any()
    np.testing.assert_allclose(
        env.true_q(PLACES, 0.5),
        # last: 4; second: -1 + 2 = 1; first: 2 + 0.5. The rest is what being forbidden leaves.
        [[1.5, -0.5, 2.5, -9.5], [-8.0, 1.0, -8.0, -8.0], [1.0, -10.0, -10.0, 4.0]],
    )


def test_only_the_masked_chain_lasts_longer_than_a_step():
    for make in PPO_PROBES:
        terminated = random_play(make)[3]
        assert terminated.all() == (make is not MaskedAction) and terminated.any()


def test_observations_are_as_varied_as_documented():
    counts = {MaskedAction: 3, MaskedKinds: 3, ActionKinds: 3, DictObservation: 4}
    for make, count in counts.items():
        leaves = [leaf.reshape(len(leaf), -1) for leaf in tf.nest.flatten(random_play(make)[0])]
        assert len(np.unique(np.concatenate(leaves, axis=1), axis=0)) == count
    shown = random_play(ContinuousAction)[0]
    assert shown.min() < -0.95 and shown.max() > 0.95 and abs(shown.mean()) < 0.1


def test_neither_one_entry_nor_one_component_suffices():
    obs, action, reward, *_ = random_play(DictObservation)
    for entry in (obs["sign"][:, 0], obs["picture"][:, 0, 0]):
        for value in np.unique(entry):
            for taken in (0, 1):
                assert abs(reward[(entry == value) & (action == taken)].mean()) < 0.25
    obs, action, reward, *_ = random_play(ActionKinds)
    best = ActionKinds().best_action(obs)
    right = action == best
    np.testing.assert_array_equal(reward, right.all(axis=1))
    assert (right.any(axis=1) & ~right.all(axis=1)).any()


def test_the_best_continuous_actions_lie_inside_their_bounds_and_differ_from_their_centres():
    env = ContinuousAction()
    best = env.best_action(np.linspace(-1, 1, 21)[:, None])
    low, high = np.array(env.spec.action.low), np.array(env.spec.action.high)
    assert np.all(best >= low + 0.4) and np.all(best <= high - 0.4)
    assert np.all(np.ptp(best, axis=0) >= 2.0)


def test_every_action_space_and_observation_form_is_among_them():
    specs = [make.spec for make in PPO_PROBES]
    forms = {(type(spec.action), isinstance(spec.obs, dict), spec.masked) for spec in specs}
    assert forms == {
        (Discrete, True, True),
        (MultiDiscrete, True, True),
        (MultiDiscrete, False, False),
        (Box, False, False),
        (Discrete, True, False),
    }
    assert all(make.__name__ in on_policy.__doc__ for make in PPO_PROBES)
