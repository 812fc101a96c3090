"""Tiny runs of the DQN family."""

import numpy as np

from kytolly.trainer import Trainer

SMALL = {
    "total_env_steps": 240,
    "num_envs": 2,
    "xla": False,
    "batch_size": 8,
    "hidden_units": (8, 8),
    "replay_capacity": 200,
    "warmup_env_steps": 32,
    "train_interval_env_steps": 12,
    "updates_per_interval": 2,
    "target_sync_updates": 5,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "evaluation_interval_env_steps": 60,  # as a resumed run has them: the best weights are kept
    "log_interval_env_steps": 60,
}


def train(folder, algorithm, **settings):
    trainer = Trainer(folder, progress=False)
    resume = settings.pop("resume", False)
    cfg = {**SMALL, "algorithm": algorithm, **settings}
    return trainer.train(cfg, "CartPole-v1", resume=resume)


def weights_of(result):
    result.agent.policy.publish()
    return [*result.agent.policy.network.get_weights(), result.agent.policy.target_vector.numpy()]


def assert_same_weights(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)
