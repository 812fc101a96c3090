"""Settings that solve a task within its published number of env steps, by algorithm and task.

The keys of a configuration file and the flags of the command line win over them.
"""

from __future__ import annotations

from typing import Any

DQN: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"evaluation_episodes": 100},
    "Acrobot-v1": {
        "total_env_steps": 100_000,
        "learning_rate": 1e-3,
        "updates_per_interval": 16,
        "target_sync_updates": 200,
        "n_step": 5,
        "exploration_env_steps": 12_000,
        "epsilon_final": 0.1,
        "evaluation_interval_env_steps": 500,
        "evaluation_episodes": 300,
    },
    "MountainCar-v0": {
        "total_env_steps": 120_000,
        "gamma": 0.98,
        "train_interval_env_steps": 16,
        "updates_per_interval": 8,
        "target_sync_updates": 300,
        "n_step": 3,
        "exploration_env_steps": 24_000,
        "epsilon_final": 0.07,
        "evaluation_interval_env_steps": 2_400,
        "evaluation_episodes": 200,
    },
    "LunarLander-v3": {
        "total_env_steps": 100_000,
        "learning_rate": 6e-4,
        "hidden_units": (256, 128),
        "target_sync_updates": 250,
        "n_step": 3,
        "replay_capacity": 100_000,
        "exploration_env_steps": 12_000,
        "epsilon_final": 0.05,
        "evaluation_episodes": 20,
    },
}

PPO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "total_env_steps": 100_000,
        "num_envs": 8,
        "rollout_steps": 32,
        "epochs": 20,
        "num_minibatches": 1,
        "learning_rate": 1e-3,
        "learning_rate_final": 0.0,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "entropy_coef": 0.0,
        "evaluation_episodes": 100,
    },
    "Acrobot-v1": {
        "total_env_steps": 1_000_000,
        "num_envs": 32,
        "rollout_steps": 64,
        "epochs": 10,
        "num_minibatches": 8,
        "learning_rate": 1e-3,
        "learning_rate_final": 0.0,
        "gae_lambda": 0.94,
        "normalize_observations": True,
        "normalize_rewards": True,
        "evaluation_interval_env_steps": 20_000,
        "evaluation_episodes": 400,
    },
    "Pendulum-v1": {
        "total_env_steps": 300_000,
        "num_envs": 4,
        "rollout_steps": 1024,
        "epochs": 10,
        "num_minibatches": 64,
        "learning_rate": 1e-3,
        "learning_rate_final": 0.0,
        "gamma": 0.95,
        "noise_correlation": 0.5,
        "normalize_rewards": True,
        "evaluation_episodes": 400,
    },
    "MountainCarContinuous-v0": {
        "total_env_steps": 100_000,
        "num_envs": 4,
        "rollout_steps": 256,
        "num_minibatches": 8,
        "noise_correlation": 0.97,
        "normalize_observations": True,
        "normalize_rewards": True,
        "evaluation_episodes": 100,
    },
    "HalfCheetah-v5": {
        "total_env_steps": 1_000_000,
        "num_envs": 4,
        "rollout_steps": 512,
        "epochs": 10,
        "num_minibatches": 32,
        "hidden_units": (256, 256),
        "activation": "relu",
        "learning_rate_final": 0.0,
        "gamma": 0.98,
        "gae_lambda": 0.92,
        "clip_range": 0.1,
        "log_std_init": -2.0,
        "normalize_observations": True,
        "normalize_rewards": True,
        "evaluation_episodes": 10,
    },
    "LunarLander-v3": {
        "total_env_steps": 1_000_000,
        "num_envs": 16,
        "rollout_steps": 1024,
        "epochs": 4,
        "num_minibatches": 256,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "entropy_coef": 0.01,
        "evaluation_episodes": 20,
    },
}

TUNED = {"dqn": DQN, "ddqn": DQN, "ppo": PPO}


def tuned_settings(algorithm: str, env: str) -> dict[str, Any]:
    """The fields in which this project's settings for a task differ from the defaults.

    Args:
        algorithm: Name of an algorithm; dqn and ddqn share their settings.
        env: Gymnasium id.
    """
    return dict(TUNED.get(algorithm, {}).get(env, {}))
