"""Presets: how much is learned from at once, from little memory to much.

A preset sets the settings below and no others; what the user gives wins. What each takes is
measured on the machine by `machine.presets`.
"""

from __future__ import annotations

from typing import Any

PRESETS = ("safe", "optimal", "aggressive")

# An update of the same 128 rows, but for the last, whose replay memory is ten times as large.
DQN: dict[str, dict[str, Any]] = {
    "safe": {"batch_size": 32, "gradient_accumulation": 4, "replay_capacity": 10_000},
    "optimal": {"batch_size": 128, "gradient_accumulation": 1, "replay_capacity": 50_000},
    "aggressive": {"batch_size": 256, "gradient_accumulation": 1, "replay_capacity": 500_000},
}

ROLLOUT = ("num_envs", "rollout_steps", "num_minibatches", "gradient_accumulation")

# An update of 64 rows, in 4 parts, in one, and of 512 rows from 64 environments.
PPO: dict[str, dict[str, Any]] = {
    "safe": dict(zip(ROLLOUT, (8, 128, 64, 4), strict=True)),
    "optimal": dict(zip(ROLLOUT, (8, 128, 16, 1), strict=True)),
    "aggressive": dict(zip(ROLLOUT, (64, 128, 16, 1), strict=True)),
}

# An update of 128 rows, in 4 parts, in one, and of four times as many environments.
PQN: dict[str, dict[str, Any]] = {
    "safe": dict(zip(ROLLOUT, (32, 32, 32, 4), strict=True)),
    "optimal": dict(zip(ROLLOUT, (32, 32, 8, 1), strict=True)),
    "aggressive": dict(zip(ROLLOUT, (128, 32, 32, 1), strict=True)),
}

FAMILY = ("dqn", "ddqn", "c51", "qr-dqn", "iqn", "munchausen", "rainbow")
KINDS = {**dict.fromkeys(FAMILY, DQN), "pqn": PQN, "ppo": PPO}


def preset(name: str, kind: str) -> dict[str, Any]:
    """The settings of a preset, by name.

    Args:
        name: One of `PRESETS`.
        kind: An algorithm.

    Raises:
        ValueError: There is no such preset, or none for that kind.
    """
    for given, known, what in ((kind, KINDS, "kind of training"), (name, PRESETS, "preset")):
        if given not in known:
            raise ValueError(
                f"{given!r} is no {what} with presets, expected one of {', '.join(known)}."
            )
    return dict(KINDS[kind][name])
