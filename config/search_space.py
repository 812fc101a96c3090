"""The search spaces of `kytolly tune`, by algorithm: each setting with its range or choices.

A setting that the user gives is not searched. All others stay as they are without tuning.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple


class Between(NamedTuple):
    """A number in a range, drawn uniformly, or uniformly in its logarithm."""

    low: float
    high: float
    log: bool = False


class Choice(NamedTuple):
    """One of a few values."""

    values: tuple[Any, ...]


DQN: dict[str, Between | Choice] = {
    "learning_rate": Between(2e-4, 1e-2, log=True),  # above the default learning_rate_final
    "gamma": Choice((0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
    "n_step": Choice((1, 3, 5)),
    "batch_size": Choice((32, 64, 128, 256)),
    "train_interval_env_steps": Choice((16, 32, 64, 128)),
    "updates_per_interval": Choice((8, 16, 32, 64)),
    "target_mix": Between(0.005, 0.1, log=True),
    "exploration_env_steps": Choice((2_000, 5_000, 10_000, 20_000, 40_000)),
    "epsilon_final": Between(0.01, 0.2, log=True),
}
# A rollout of at least 32 steps, in at most 16 parts of at least 2 rows.
PPO: dict[str, Between | Choice] = {
    "learning_rate": Between(1e-4, 1e-2, log=True),
    "gamma": Choice((0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
    "gae_lambda": Choice((0.8, 0.9, 0.92, 0.95, 0.98, 1.0)),
    "rollout_steps": Choice((32, 64, 128, 256, 512)),
    "epochs": Choice((4, 10, 20)),
    "num_minibatches": Choice((1, 2, 4, 8, 16)),
    "entropy_coef": Between(1e-6, 0.1, log=True),
    "clip_range": Choice((0.1, 0.2, 0.3)),
    "max_grad_norm": Choice((0.3, 0.5, 1.0, 5.0)),
}

# A rollout of at least 512 rows, in at most 16 parts of at least 32.
PQN: dict[str, Between | Choice] = {
    "learning_rate": Between(1e-4, 3e-3, log=True),
    "gamma": Choice((0.95, 0.98, 0.99, 0.995)),
    "td_lambda": Choice((0.5, 0.65, 0.8, 0.9, 0.95)),
    "rollout_steps": Choice((16, 32, 64, 128)),
    "epochs": Choice((1, 2, 4)),
    "num_minibatches": Choice((4, 8, 16)),
    "exploration_env_steps": Choice((5_000, 10_000, 20_000, 40_000)),
    "epsilon_final": Between(0.01, 0.2, log=True),
}

SOFT = {
    "entropy_temperature": Between(3e-3, 0.3, log=True),
    "munchausen_scale": Choice((0.0, 0.7, 0.9, 0.95)),
}
DRAWN = {
    "priority_exponent": Choice((0.3, 0.5, 0.6, 0.7)),
    "importance_exponent": Choice((0.2, 0.4, 0.6, 1.0)),
}
NOISY = {**DQN, "noise_scale": Between(0.03, 1.0, log=True)}
SEARCH_SPACES = {
    "dqn": DQN,
    "ddqn": DQN,
    "c51": {**DQN, "num_atoms": Choice((21, 51, 101))},
    "qr-dqn": {**DQN, "num_quantiles": Choice((8, 16, 32, 64))},
    "iqn": {**DQN, "num_quantiles": Choice((4, 8, 16)), "num_target_quantiles": Choice((4, 8, 16))},
    "munchausen": {**DQN, **SOFT},
    "rainbow": {**NOISY, "num_atoms": Choice((21, 27, 51)), **DRAWN},
    "pqn": PQN,
    "ppo": PPO,
}


def search_space(algorithm: str, given: Container[str] = ()) -> dict[str, Between | Choice]:
    """The settings to search for an algorithm, without those that are given.

    Raises:
        ValueError: The algorithm has no search space, or all of its settings are given.
    """
    if algorithm not in SEARCH_SPACES:
        raise ValueError(
            f"{algorithm} has no search space, expected one of {', '.join(SEARCH_SPACES)}. Tune "
            "one of these, or add a row to config/search_space.py."
        )
    space = {name: values for name, values in SEARCH_SPACES[algorithm].items() if name not in given}
    if not space:
        raise ValueError(
            f"all settings that are searched for {algorithm} are given, expected that some of "
            f"{', '.join(SEARCH_SPACES[algorithm])} are left. Leave some out."
        )
    return space
