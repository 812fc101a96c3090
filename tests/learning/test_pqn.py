"""PQN finds the known action values of every probe environment."""

import numpy as np
import pytest

from kytolly.agent.make_agent import make_agent
from kytolly.config.pqn import PQNConfig
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.loop.device import DeviceLoop
from kytolly.loop.host import HostLoop
from tests.helpers.cases import learning
from tests.helpers.q_learning_probes import PROBES, EndlessReward, Ring
from tests.learning.test_ppo import Endless, observations

GAMMA = 0.9
SETTINGS = {
    "gamma": GAMMA,
    "num_envs": 32,
    "rollout_steps": 8,
    "epochs": 4,
    "num_minibatches": 4,
    "hidden_units": (32,),
    "learning_rate": 3e-3,
    "total_env_steps": 40_000,
    "epsilon_final": 0.5,
    "exploration_env_steps": 40_000,
    "normalize_rewards": False,  # the values are known
    "seed": 1,
}
# With one observation the layer norms leave a value of 10 to the biases of the head. A rate that
# falls to 0 ends on the way there, at 9.8.
FAR = {"learning_rate": 0.03, "learning_rate_final": None}


def trained(env, **settings):
    cfg = PQNConfig(**{**SETTINGS, **settings})
    agent = make_agent(cfg, env.spec)
    DeviceLoop(agent, env).run(cfg.total_env_steps)
    agent.policy.publish()
    return agent


# An action at random is part of the returns beyond one step: with lambda 0 there are none.
@pytest.mark.parametrize("td_lambda", [learning(0.0), 0.65])
def test_it_finds_the_sum_up_to_a_time_limit_and_beyond(td_lambda):
    """Three places in a circle, cut every 4 steps: a quick one that most faults fail."""
    env = Ring()
    agent, obs = trained(env, td_lambda=td_lambda), observations(env)
    np.testing.assert_allclose(agent.q_values(obs), env.true_q(obs, GAMMA), atol=0.2)


@pytest.mark.learning
@pytest.mark.parametrize("make_env", PROBES, ids=lambda make: make.__name__)
def test_it_finds_the_known_values(make_env):
    env = make_env()
    changes = {**FAR, "td_lambda": 0.65} if make_env is EndlessReward else {}
    agent, obs = trained(env, **{"td_lambda": 0.0, **changes}), observations(env)
    np.testing.assert_allclose(agent.q_values(obs), env.true_q(obs, GAMMA), atol=0.15)


@pytest.mark.learning
def test_what_follows_a_time_limit_counts_where_a_rollout_holds_one_at_most():
    env = EndlessReward()  # a limit of 5 steps
    agent = trained(env, rollout_steps=4, **FAR)
    np.testing.assert_allclose(agent.values(np.zeros((1, 1), np.float32)), [10.0], atol=0.2)


@pytest.mark.learning
def test_what_follows_a_time_limit_counts_on_the_host():
    groups = make_host_groups(Endless, 8, seed=0)
    settings = {**SETTINGS, "num_envs": 8, "rollout_steps": 16, "total_env_steps": 20_000}
    cfg = PQNConfig(**settings)
    agent = make_agent(cfg, groups[0].spec)
    loop = HostLoop(agent, groups)
    loop.run(cfg.total_env_steps)
    loop.close()
    agent.policy.publish()
    # Who takes the limit for an end finds at most 4.1.
    found = agent.values(np.array([[0.0], [1.0]], np.float32))
    np.testing.assert_allclose(found, [10.0, 10.0], atol=0.2)
