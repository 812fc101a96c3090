"""Settings that solve a task within its published number of env steps, by algorithm and task.

The keys of a configuration file and the flags of the command line win over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kytolly.config.words import nearest, value_text

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig

# The defaults of 0.2.0 that have changed since. The rows below were tuned with them.
Q_LEARNING: dict[str, Any] = {
    "learning_rate": 2e-3,
    "updates_per_interval": 16,
    "n_step": 5,
    "reward_scale": 1.0,
    "huber_delta": 1.0,
    "target_sync_updates": 200,
    "target_mix": 1.0,
    "cut_at_exploration": False,
    "exploration_repeat": 1,
    "normalize_observations": False,
    "layer_norm": False,
    "epsilon_final": 0.04,
}
ROLLOUTS: dict[str, Any] = {
    "rollout_steps": 128,
    "epochs": 4,
    "num_minibatches": 4,
    "entropy_coef": 0.0,
    "action_bounds": "clip",
    "gae_lambda_value": None,
    "average_share": 0.0,
    "learning_rate": 3e-4,
    "learning_rate_final": None,
    "normalize_observations": False,
    "normalize_rewards": False,
}
TEMPERATURE = {"entropy_temperature": 0.03}
ATOMS = Q_LEARNING | TEMPERATURE | {"value_min": -100.0, "value_max": 100.0}
WITHOUT_EPSILON = {"epsilon_start": 0.0, "epsilon_final": 0.0, "noise_scale": 0.5}
OLDER_DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "0.2": {
        **dict.fromkeys(("dqn", "ddqn"), Q_LEARNING),
        **dict.fromkeys(("munchausen", "qr-dqn"), Q_LEARNING | TEMPERATURE),
        "iqn": Q_LEARNING | TEMPERATURE | {"layers_after_level": 1},
        "c51": ATOMS,
        "rainbow": ATOMS | WITHOUT_EPSILON | {"n_step": 3, "num_atoms": 51},
        "pqn": {"normalize_observations": False},
        "ppo": ROLLOUTS,
    }
}

PPO: dict[str, dict[str, Any]] = {
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
        "total_env_steps": 100_000,
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
        "total_env_steps": 20_000,
        "num_envs": 4,
        "rollout_steps": 256,
        "num_minibatches": 8,
        "noise_correlation": 0.97,
        "normalize_observations": True,
        "normalize_rewards": True,
        "evaluation_episodes": 100,
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

MUJOCO: dict[str, Any] = {
    "total_env_steps": 1_000_000,
    "num_envs": 4,
    "rollout_steps": 512,
    "epochs": 10,
    "num_minibatches": 32,
    "learning_rate_final": 0.0,
    "normalize_observations": True,
    "normalize_rewards": True,
    "evaluation_episodes": 10,
}
QUIET_START: dict[str, Any] = {  # where large actions at first cost more than they find
    "hidden_units": (256, 256),
    "activation": "relu",
    "gamma": 0.98,
    "gae_lambda": 0.92,
    "clip_range": 0.1,
    "log_std_init": -2.0,
}
PPO |= {
    "HalfCheetah-v5": MUJOCO | QUIET_START,
    "Hopper-v5": MUJOCO,
    "Walker2d-v5": MUJOCO,
    "Ant-v5": MUJOCO | QUIET_START,
    "Swimmer-v5": MUJOCO | {"gamma": 0.9999, "gae_lambda": 0.98},
}

PPO["ALE/Pong-v5"] = {
    "total_env_steps": 4_500_000,
    "num_envs": 16,
    "rollout_steps": 128,
    "epochs": 4,
    "num_minibatches": 8,
    "network": "small_cnn",
    "hidden_units": (256,),
    "activation": "relu",
    "shared_torso": True,
    "learning_rate": 5e-4,
    "learning_rate_final": 5e-5,
    "clip_range": 0.1,
    "entropy_coef": 0.01,
    "evaluation_interval_env_steps": 500_000,
    "evaluation_episodes": 3,
}

# The settings of the paper's authors for MinAtar.
MINATAR_PQN: dict[str, Any] = {
    "total_env_steps": 10_000_000,
    "num_envs": 128,
    "rollout_steps": 32,
    "epochs": 2,
    "num_minibatches": 32,
    "hidden_units": (128,),
    "learning_rate": 5e-4,
    "td_lambda": 0.65,
    "epsilon_final": 0.05,
    "exploration_env_steps": 1_000_000,
    "normalize_rewards": False,
    "evaluation_episodes": 64,
}
MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
PQN = {f"MinAtar/{game}-v{rules}": MINATAR_PQN for game in MINATAR for rules in (0, 1)}
MINATAR_MUNCHAUSEN: dict[str, Any] = {
    "total_env_steps": 5_000_000,
    "num_envs": 64,
    "network": "dueling_auto",
    "hidden_units": (128,),
    "replay_capacity": 500_000,
    "warmup_env_steps": 20_000,
    "train_interval_env_steps": 64,
    "updates_per_interval": 2,
    "n_step": 3,
    "learning_rate": 5e-4,
    "learning_rate_final": 5e-5,
    "exploration_env_steps": 250_000,
    "epsilon_final": 0.02,
    "evaluation_episodes": 64,
}
MUNCHAUSEN = {
    f"MinAtar/{game}-v{rules}": MINATAR_MUNCHAUSEN for game in MINATAR for rules in (0, 1)
}

# As rl-baselines3-zoo's, with longer returns, normalized observations, less exploration and four
# updates for each env step, which return -73.6; one returns -77.1.
QR_DQN: dict[str, dict[str, Any]] = {
    "Acrobot-v1": {
        "total_env_steps": 100_000,
        "num_envs": 16,
        "hidden_units": (256, 256),
        "num_quantiles": 25,
        "n_step": 4,
        "normalize_observations": True,
        "learning_rate": 6.3e-4,
        "learning_rate_final": 0.0,
        "target_sync_updates": 250,
        "train_interval_env_steps": 64,
        "updates_per_interval": 256,
        "exploration_env_steps": 12_000,
        "epsilon_final": 0.02,
        "evaluation_interval_env_steps": 1_000,
        "evaluation_episodes": 300,
    }
}


TUNED = {
    algorithm: {env: OLDER_DEFAULTS["0.2"][algorithm] | row for env, row in rows.items()}
    for algorithm, rows in {
        "qr-dqn": QR_DQN,
        "munchausen": MUNCHAUSEN,
        "ppo": PPO,
        "pqn": PQN,
    }.items()
}
# The defaults return as much or more here: these say how long, and how exactly.
AS_BY_DEFAULT: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"evaluation_episodes": 100},
    "Acrobot-v1": {"total_env_steps": 100_000},
    "MountainCar-v0": {"total_env_steps": 120_000},
    "LunarLander-v3": {"total_env_steps": 100_000},
}
TUNED |= {"dqn": AS_BY_DEFAULT, "ddqn": AS_BY_DEFAULT}
TUNED["ppo"]["CartPole-v1"] = {"total_env_steps": 100_000, "evaluation_episodes": 100}

# Tasks that hide what the best action depends on; tuned with defaults that were those of today,
# without an average.
TUNED["ppo"] |= {
    "CartPoleNoVel-v1": {
        "total_env_steps": 100_000,
        "gae_lambda_value": None,
        "average_share": 0.0,
        "memory": "gru",
    },
    "PendulumNoVel-v1": {
        "total_env_steps": 100_000,
        "gae_lambda_value": None,
        "average_share": 0.0,
        "action_bounds": "clip",
        "memory": "gru",
        "memory_length": 64,
        "num_envs": 4,
        "rollout_steps": 1024,
        "num_minibatches": 16,
        "learning_rate": 1e-3,
        "gamma": 0.95,
        "noise_correlation": 0.5,
    },
    "MountainCarContinuousNoVel-v0": {
        "total_env_steps": 100_000,
        "gae_lambda_value": None,
        "average_share": 0.0,
        "memory": "gru",
        "num_envs": 4,
        "rollout_steps": 256,
        "noise_correlation": 0.97,
    },
}


def tuned_settings(algorithm: str, env: str) -> dict[str, Any]:
    """The fields in which this project's settings for a task differ from the defaults.

    Args:
        algorithm: Name of an algorithm; dqn and ddqn share their settings.
        env: Gymnasium id.
    """
    return dict(TUNED.get(algorithm, {}).get(env, {}))


def older_defaults(version: str, algorithm: str) -> dict[str, Any]:
    """The defaults of an earlier version that are others now; ValueError where there are none.

    Args:
        version: "0.2".
        algorithm: Name of an algorithm.
    """
    if version not in OLDER_DEFAULTS:
        known = ", ".join(OLDER_DEFAULTS)
        raise ValueError(
            f"{value_text(version)} is no version with other defaults, expected {known}."
        )
    return dict(OLDER_DEFAULTS[version].get(algorithm, {}))


def chosen_tuned_settings(wanted: bool | None, algorithm: str, env: str) -> dict[str, Any]:
    """The tuned settings of a task, or none.

    Args:
        wanted: True demands them, False leaves them out, None takes them where there are some.
        algorithm: Name of an algorithm.
        env: Gymnasium id.

    Raises:
        ValueError: They were asked for, and there are none.
    """
    settings = {} if wanted is False else tuned_settings(algorithm, env)
    if wanted and not settings:
        known = TUNED.get(algorithm, {})
        tasks = f"one of {', '.join(known)}" if known else f"an algorithm of {', '.join(TUNED)}"
        raise ValueError(
            f"--tuned is given, and there are no tuned settings of {algorithm} for "
            f"{value_text(env)}, expected {tasks}.{nearest(env, known) or ' Leave --tuned out.'}"
        )
    return settings


def without_memory(tuned: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The tuned settings, without those of a memory where `given` sets memory to none."""
    if given.get("memory", "") not in (None, "none"):
        return tuned
    return {name: value for name, value in tuned.items() if not name.startswith("memory_")}


def tuned_line(cfg: RunConfig, env: str) -> str:
    """One line about the tuned settings that a config has; empty where it has none.

    Args:
        cfg: The config.
        env: Gymnasium id.
    """
    tuned = tuned_settings(cfg.algorithm, env)
    values = [f"{name} {value}" for name, value in tuned.items() if getattr(cfg, name) == value]
    if not values:
        return ""
    steps, most = cfg.total_env_steps, tuned.get("total_env_steps", type(cfg)().total_env_steps)
    short = f" They are for {most:,} env steps: in {steps:,}, the defaults may learn more."
    line = f"tuned settings for {env}: {', '.join(values)}. --no-tuned leaves them out."
    return line + short if 2 * steps < most else line
