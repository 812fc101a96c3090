"""The smallest runs of DQN and PPO, trained once for all tests of this folder in a process."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kytolly.callback.base import Callback
from kytolly.trainer import Trainer
from tests.environment.masked import Masked

SMALL = {
    "xla": False,
    "loop": "host",
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "hidden_units": (8,),
    "seed": 3,
}
DQN = {
    **SMALL,
    "algorithm": "dqn",
    "total_env_steps": 120,
    "warmup_env_steps": 20,
    "batch_size": 4,
    "replay_capacity": 200,
    "learning_rate": 0.01,
    "checkpoint_interval_env_steps": 40,
    "evaluation_interval_env_steps": 40,
    "log_interval_env_steps": 40,
}
PPO = {
    **SMALL,
    "algorithm": "ppo",
    "total_env_steps": 64,
    "rollout_steps": 16,
    "num_envs": 1,
    "num_minibatches": 2,
    "epochs": 1,
    "normalize_observations": True,
}


@dataclasses.dataclass
class Trained:
    """A run, and the weights that its network had."""

    path: Path
    result: Any
    at: dict[int, list[np.ndarray]]  # by env steps, the last of them at the end


class KeepWeights(Callback):
    """Keeps the weights of every moment at which a checkpoint may be written."""

    def __init__(self):
        self.at = {}

    def on_interval_end(self, state):
        self.at[state.env_steps] = state.network.get_weights()

    on_train_end = on_interval_end


def train(path, cfg, env):
    keeper = KeepWeights()
    result = Trainer(path, progress=False).train(cfg, env, [keeper])
    return Trained(path, result, keeper.at)


@pytest.fixture(scope="session")
def dqn(tmp_path_factory):
    return train(tmp_path_factory.mktemp("dqn") / "run", DQN, "CartPole-v1")


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory):
    return train(tmp_path_factory.mktemp("pendulum") / "run", PPO, "Pendulum-v1")


@pytest.fixture(scope="session")
def masked(tmp_path_factory):
    """A run whose observations are a Dict with a mask: place [3], step [9], action_mask [4]."""
    return train(tmp_path_factory.mktemp("masked") / "run", PPO, lambda: Masked("entry"))
