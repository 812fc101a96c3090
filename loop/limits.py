"""How long an episode of an evaluation may last that has no time limit of its own."""

import warnings

STEP_LIMIT = 27_000  # env steps, as in Atari; the episode is cut there


def warn_of_cut(name: str) -> None:
    """Say that an episode of an environment was cut."""
    warnings.warn(
        f"An evaluation episode of {name} did not end within {STEP_LIMIT:,} env steps and was cut "
        "there. Give the environment a time limit (max_episode_steps, or Gymnasium's TimeLimit).",
        stacklevel=2,
    )
