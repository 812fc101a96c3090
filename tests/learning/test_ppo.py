"""PPO finds the known values and best actions of every probe environment."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from kytolly.agent.make_agent import make_agent
from kytolly.config.ppo import PPOConfig
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.loop.device import DeviceLoop
from kytolly.loop.host import HostLoop
from tests.helpers.on_policy_probes import (
    PPO_PROBES,
    ContinuousAction,
    DictObservation,
    MaskedAction,
)
from tests.helpers.q_learning_probes import PROBES, EndlessReward, ObservationAction

GAMMA = 0.9
SETTINGS = {
    "gamma": GAMMA,
    "normalize_rewards": False,
    "num_envs": 32,
    "rollout_steps": 8,
    "epochs": 4,
    "num_minibatches": 2,
    "hidden_units": (32,),
    "learning_rate": 1e-2,
    "learning_rate_final": 0.0,
    "total_env_steps": 40_000,
    "max_grad_norm": 5.0,
    "seed": 1,
}


def trained(env, **settings):
    cfg = PPOConfig(**{**SETTINGS, **settings})
    agent = make_agent(cfg, env.spec)
    DeviceLoop(agent, env).run(cfg.total_env_steps)
    agent.policy.publish()
    return agent


def values(agent, obs):
    return agent.policy.outputs(obs, agent.policy.current_weights())[1]


def observations(env, count=64):
    """Observations of fresh episodes and of four steps on."""
    rng = np.random.default_rng(0)
    state = env.reset(tf.constant(rng.random((count, env.reset_uniforms)), tf.float32))
    seen = [env.observe(state)]
    if env.spec.name in ("probe/delayed-reward", "probe/masked-action"):
        first = env.best_action(seen[0]) if hasattr(env, "best_action") else np.zeros(count)
        state, *_ = env.step(state, tf.constant(first, tf.int32), tf.zeros([count, 0]))
        seen.append(env.observe(state))
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *seen)


def test_ppo_finds_which_action_goes_with_which_observation():
    """A quick one that most faults fail."""
    env = ObservationAction()
    agent, obs = trained(env, total_env_steps=15_000), observations(env)
    true_q = env.true_q(obs, GAMMA)
    np.testing.assert_allclose(values(agent, obs), true_q.max(axis=1), atol=0.1)
    np.testing.assert_array_equal(agent.act(obs), true_q.argmax(axis=1))


@pytest.mark.learning
@pytest.mark.parametrize("make_env", PROBES, ids=lambda make: make.__name__)
def test_ppo_finds_the_known_values_and_the_best_action(make_env):
    env = make_env()
    agent, obs = trained(env), observations(env)
    true_q = env.true_q(obs, GAMMA)
    np.testing.assert_allclose(values(agent, obs), true_q.max(axis=1), atol=0.1)
    np.testing.assert_array_equal(agent.act(obs), true_q.argmax(axis=1))


@pytest.mark.learning
@pytest.mark.parametrize("make_env", PPO_PROBES, ids=lambda make: make.__name__)
def test_ppo_solves_masks_kinds_numbers_and_dicts(make_env):
    env = make_env()
    # The entries of the dict must be combined as by XOR: in haste, or with few units, PPO settles
    # for three of the four cases.
    patient = {"learning_rate": 3e-3, "hidden_units": (64, 64), "entropy_coef": 0.1}
    settings = patient if make_env is DictObservation else {}
    agent, obs = trained(env, **settings), observations(env)
    atol = 0.15 if make_env is ContinuousAction else 0.1
    found = values(agent, obs)
    np.testing.assert_allclose(found, env.true_value(obs, GAMMA), atol=atol)
    np.testing.assert_allclose(agent.act(obs), env.best_action(obs), atol=atol)


@pytest.mark.learning
def test_squashed_numbers_are_found_too():
    """Before the tanh they are curved in x; with larger steps the noise ends before the curve."""
    env, slower = ContinuousAction(), {"learning_rate": 3e-3, "epochs": 8, "hidden_units": (64, 64)}
    agent = trained(env, action_bounds="squash", state_dependent_std=True, **slower)
    obs = observations(env)
    np.testing.assert_allclose(agent.act(obs), env.best_action(obs), atol=0.1)


@pytest.mark.learning
def test_what_follows_a_time_limit_counts_if_a_rollout_holds_one_at_most():
    env = EndlessReward()  # a limit of 5 steps
    agent = trained(env, rollout_steps=4)
    np.testing.assert_allclose(values(agent, tf.zeros([1, 1])), [10.0], atol=0.1)


class Endless(gymnasium.Env):
    """Reward 1 at every step; truncated after 2 to 5 steps, and shows which they are."""

    observation_space = spaces.Box(-1, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 6))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.ones(1, np.float32), 1.0, False, self.left == 0, {}


@pytest.mark.learning
def test_what_follows_a_time_limit_counts_on_the_host():
    groups = make_host_groups(Endless, 8, seed=0)
    cfg = PPOConfig(**{**SETTINGS, "num_envs": 8, "rollout_steps": 16, "total_env_steps": 20_000})
    agent = make_agent(cfg, groups[0].spec)
    loop = HostLoop(agent, groups)
    loop.run(cfg.total_env_steps)
    loop.close()
    # Who takes the limit for an end finds at most 4.1, and who bootstraps from what comes after
    # the reset never sees the values of the last observation.
    value = values(agent, tf.constant([[0.0], [1.0]]))
    np.testing.assert_allclose(value, [10.0, 10.0], atol=0.1)


@pytest.mark.learning
def test_normalization_finds_the_same_actions():
    env = MaskedAction()
    agent = trained(env, normalize_observations=True, normalize_rewards=True)
    obs = observations(env)
    np.testing.assert_array_equal(agent.act(obs), env.best_action(obs))
