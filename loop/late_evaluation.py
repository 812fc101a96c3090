"""Says that an evaluation, or its episodes, had no time to end."""

from __future__ import annotations

import warnings

import numpy as np


def warn_of_time(name: str, ended: int, episodes: int) -> None:
    """Say that an evaluation had no time to end."""
    counted = "only those count" if ended else "what they had reached counts"
    warnings.warn(
        f"max_wall_seconds cut an evaluation of {name} when {ended} of {episodes} episodes had "
        f"ended; {counted}.",
        stacklevel=2,
    )


def counted_in_time(name: str, ended: np.ndarray) -> np.ndarray:
    """[E] bool, which episodes count when time is up: those that have [E] ended, or else all."""
    warn_of_time(name, int(ended.sum()), len(ended))
    return ended if ended.any() else ~ended


def warn_of_cut(name: str, env_steps: int, largest: int) -> None:
    """Say that an episode was cut after so many env steps; one after training after the largest."""
    rest = ""
    if env_steps < largest:
        rest = "; once episodes of training last longer, evaluations play longer ones, "
        rest += f"{largest:,} at most"
    warnings.warn(
        f"An evaluation episode of {name} did not end within {env_steps:,} env steps "
        f"and was cut there{rest}. Give the environment a time limit (max_episode_steps, or "
        "Gymnasium's TimeLimit), also where it ends its episodes itself, but later.",
        stacklevel=2,
    )


def warn_of_longer(name: str, before: int, now: int) -> None:
    """Say that evaluations cut later from now on."""
    warnings.warn(
        f"Episodes of {name} last longer in training than the {before:,} env steps after which "
        f"evaluations cut them: from now on they cut after {now:,}, and the best weights are "
        "chosen anew, as returns of longer episodes are others.",
        stacklevel=2,
    )
