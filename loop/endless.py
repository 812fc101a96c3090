"""Evaluation episodes that do not end."""

import warnings

STEP_LIMIT = 20_000  # env steps after which an evaluation cuts an episode that has no time limit


def warn_of_cut(name: str) -> None:
    """Say that an episode of an environment was cut."""
    warnings.warn(
        f"An evaluation episode of {name} did not end within {STEP_LIMIT:,} env steps and was cut "
        "there. Give the environment a time limit (max_episode_steps, or Gymnasium's TimeLimit).",
        stacklevel=2,
    )
