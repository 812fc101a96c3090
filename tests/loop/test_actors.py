"""Environments in Ray actors: equal to one process, and what happens when an actor dies."""

import numpy as np
import pytest

from kytolly import DQNConfig, PPOConfig, Trainer
from kytolly.config.rainbow import RainbowConfig
from tests.helpers.cases import rest_learning

ray = pytest.importorskip("ray")
SHORT = {"num_envs": 4, "loop": "host", "evaluation_episodes": 1, "final_evaluation_episodes": 1}
SHORT |= {"hidden_units": (8,), "xla": False, "seed": 3, "evaluation_interval_env_steps": 10**6}
PPO = {**SHORT, "rollout_steps": 25, "num_minibatches": 2, "epochs": 2}
DQN = {**SHORT, "batch_size": 8, "warmup_env_steps": 200, "replay_capacity": 3_000}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def make_config(kind, **settings):
    return kind(**{**(PPO if kind is PPOConfig else DQN), **settings})


def train(folder, cfg, env="CartPole-v1", cb=(), **options):
    return Trainer(folder).train(cfg, env, cb, **options)


def weights(result):
    return [np.array(weight) for weight in result.agent.policy.network.get_weights()]


def require_equal(a, b):
    for ours, theirs in zip(weights(a), weights(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)


CASES = [(PPOConfig, "CartPole-v1"), (DQNConfig, "CartPole-v1")]
CASES += [(PPOConfig, "Pendulum-v1"), (RainbowConfig, "CartPole-v1")]


@pytest.mark.parametrize(("kind", "env"), rest_learning(CASES, CASES[:2]))
def test_actors_learn_what_one_process_learns(kind, env, tmp_path):
    cfg = {"total_env_steps": 5_000}
    alone = train(tmp_path / "alone", make_config(kind, **cfg), env)
    actors = train(tmp_path / "actors", make_config(kind, **cfg, actors=2), env)
    require_equal(alone, actors)
    for name in ("env_steps", "updates"):
        assert alone.summary[name] == actors.summary[name]
    assert actors.summary["env_restarts"] == 0
