"""Rows of a memory know which actions were random, whatever loop collected them."""

import numpy as np
import pytest

from kytolly.trainer import Trainer


@pytest.mark.parametrize("loop", ["device", "host"])
def test_rows_of_warm_up_are_random_and_of_no_epsilon_are_not(loop, tmp_path):
    cfg = {
        "algorithm": "dqn",
        "loop": loop,
        "num_envs": 2,
        "xla": False,
        "hidden_units": [4],
        "batch_size": 8,
        "warmup_env_steps": 64,
        "train_interval_env_steps": 16,
        "updates_per_interval": 1,
        "total_env_steps": 192,
        "cut_at_exploration": True,
        "epsilon_start": 0.0,
        "epsilon_final": 0.0,
        "evaluation_episodes": 1,
        "final_evaluation_episodes": 1,
    }
    memory = Trainer(tmp_path / "run", progress=False).train(cfg, "CartPole-v1").agent.memory
    explored = memory.explored.numpy()
    assert explored[:64].all()
    first = 64 + 64 if loop == "host" else 64  # the host acts two blocks of 32 steps ahead
    assert not explored[first:].any() and int(memory.size) == 192
    np.testing.assert_array_equal(np.unique(memory.columns.action[:64]), [0, 1])
