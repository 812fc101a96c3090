"""Each algorithm finds the known action values of every probe environment."""

import numpy as np
import pytest

from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import make_agent
from kytolly.loop.device import DeviceLoop
from tests.helpers.cases import learning
from tests.helpers.q_learning_probes import PROBES, Gamble, Ring

GAMMA = 0.9


def trained_agent(env, **settings):
    shared = {
        "algorithm": "dqn",
        "gamma": GAMMA,
        "n_step": 1,
        "num_envs": 4,
        "batch_size": 64,
        "hidden_units": (32, 32),
        "learning_rate": 3e-3,
        "learning_rate_final": 1e-4,
        "replay_capacity": 4_000,
        "warmup_env_steps": 200,
        "total_env_steps": 12_000,
        "train_interval_env_steps": 4,
        "updates_per_interval": 1,
        "target_sync_updates": 40,
        "exploration_env_steps": 20_000,
        "epsilon_final": 0.5,
        "seed": 1,
    }
    cfg = make_config({**shared, **settings})
    agent = make_agent(cfg, env.spec)
    DeviceLoop(agent, env).run(cfg.total_env_steps)
    agent.policy.publish()
    return agent


def trained_values(env, **settings):
    agent = trained_agent(env, **settings)
    memory = agent.memory
    obs = np.unique(memory.columns.obs.numpy()[: int(memory.size)], axis=0)
    return agent.q_values(obs), env.true_q(obs, GAMMA)


@pytest.mark.parametrize("settings", [{}, learning({"double": True})], ids=["dqn", "double"])
def test_it_finds_the_sum_up_to_a_time_limit_and_beyond(settings):
    """Three places in a circle, cut every 4 steps: a quick one that most faults fail."""
    found, true = trained_values(Ring(), **settings)
    np.testing.assert_allclose(found, true, atol=0.1)


@pytest.mark.learning
@pytest.mark.parametrize("delta, action", [(None, 0), (1.0, 1)])
@pytest.mark.parametrize("algorithm", ["dqn", "munchausen"])
def test_a_rare_penalty_counts_in_full(delta, action, algorithm):
    """Clipped errors see 2 in most rows, and gamble."""
    agent = trained_agent(Gamble(), algorithm=algorithm, reward_scale=None, huber_delta=delta)
    assert agent.act(np.zeros(1, np.float32)) == action


SWITCHES = {
    "prioritized": {"prioritized": True},
    "noisy": {"noisy": True},
    "both": {"noisy": True, "prioritized": True, "double": True, "network": "dueling"},
}
# Values are those of the mean weights, and learning saw noisy ones: through a ReLU they differ.
CLOSE = {"prioritized": {"atol": 0.1}}
CLOSE |= {name: {"atol": 0.2, "rtol": 0.03} for name in ("noisy", "both")}


@pytest.mark.learning
@pytest.mark.parametrize("name", ["prioritized", "noisy"])
def test_it_finds_the_sum_with_priorities_or_noise(name):
    found, true = trained_values(Ring(), **SWITCHES[name])
    np.testing.assert_allclose(found, true, **CLOSE[name])


@pytest.mark.learning
@pytest.mark.parametrize("make_env", PROBES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", SWITCHES)
def test_priorities_and_noise_find_them_too(name, make_env):
    found, true = trained_values(make_env(), **SWITCHES[name])
    np.testing.assert_allclose(found, true, **CLOSE[name])


@pytest.mark.learning
@pytest.mark.parametrize("make_env", PROBES, ids=lambda make: make.__name__)
def test_dqn_finds_the_known_values(make_env):
    found, true = trained_values(make_env())
    np.testing.assert_allclose(found, true, atol=0.1)


@pytest.mark.parametrize("make_env", PROBES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "settings", [{"algorithm": "ddqn", "network": "dueling"}, {"n_step": 3}], ids=["ddqn", "n_step"]
)
@pytest.mark.learning
def test_its_variants_find_them_too(make_env, settings):
    found, true = trained_values(make_env(), **settings)
    np.testing.assert_allclose(found, true, atol=0.1)
