import functools

import numpy as np
import pytest
import tensorflow as tf

from kytolly.environment.check import check_environment
from kytolly.environment.registry import TENSOR_ENVIRONMENTS, tensor_environment
from kytolly.environment.tensor.stepping import (
    reset_all,
    step_and_reset,
    uniforms_per_step,
)
from tests.helpers import q_learning_probes as probe
from tests.helpers.q_learning_probes import PROBES, ProbeEnvironment
from tests.test_imports import FILES, imported_modules

NUM_ENVS, STEPS = 16, 40


@functools.cache
def random_play(make):
    """Rows of random play: obs, action, reward, terminated, truncated, next_obs, flattened."""
    env, rng = make(), np.random.default_rng(5)
    draw = lambda n: tf.constant(rng.random((NUM_ENVS, n)), tf.float32)  # noqa: E731
    state, obs = reset_all(env, draw(env.reset_uniforms))
    rows = []
    for _ in range(STEPS):
        action = tf.constant(rng.integers(env.spec.num_actions, size=NUM_ENVS), tf.int32)
        state, step = step_and_reset(env, state, action, draw(uniforms_per_step(env)))
        rows.append((obs, action, step.reward, step.terminated, step.truncated, step.next_obs))
        obs = step.obs
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("make", PROBES)
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_true_q_solves_the_bellman_equation_of_what_the_environment_does(make, gamma):
    env = make()
    check_environment(env)
    assert isinstance(env, ProbeEnvironment)
    obs, action, reward, terminated, _, next_obs = random_play(make)
    # a time limit does not close the equation: only a termination does
    follows = np.where(terminated, 0.0, env.true_q(next_obs, gamma).max(axis=1))
    q = env.true_q(obs, gamma)[np.arange(len(action)), action]
    np.testing.assert_allclose(q, reward + gamma * follows, rtol=1e-5)


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


@pytest.mark.parametrize("make", PROBES)
def test_every_observation_and_action_occurs_and_episodes_end_as_documented(make):
    env = make()
    obs, action, _, terminated, truncated, _ = random_play(make)
    places = {"Corridor": 5, "Ring": 3, "ConstantReward": 1, "BestAction": 1, "EndlessReward": 1}
    assert len(np.unique(obs, axis=0)) == places.get(make.__name__, 2)
    assert len(np.unique(action)) == env.spec.num_actions
    limited = make in (probe.EndlessReward, probe.Ring)
    assert truncated.any() == limited and terminated.any() == (not limited)


MINATAR = "Asterix Breakout Freeway Seaquest SpaceInvaders".split()


def test_registry_makes_every_environment_under_its_name():
    games = "CartPole-v1 Acrobot-v1 MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1".split()
    minatar = [f"MinAtar/{title}-v{version}" for title in MINATAR for version in (0, 1)]
    assert set(TENSOR_ENVIRONMENTS) == {*games, *minatar}
    for name in TENSOR_ENVIRONMENTS:
        env = tensor_environment(name)
        assert env is not None and env.spec.name == name
    assert tensor_environment("LunarLander-v3") is None


def test_a_run_on_cartpole_loads_four_files_of_this_room_and_a_name():
    needs = {"registry", "tensor.stepping", "tensor.cartpole"}
    for _ in range(3):
        needs |= {
            name.removeprefix("environment.")
            for module in needs
            for name in imported_modules(FILES[f"environment.{module}"])
        }
    assert needs == {"registry", "tensor.stepping", "tensor.cartpole", "spec", "mask"}
