"""What ends evaluations and calls that would go on: a number of env steps, or the clock."""

import warnings

STEP_LIMIT = 20_000  # env steps after which an evaluation cuts an episode that has no time limit


class OutOfTime(Exception):
    """Time was up within a call of a loop; what it has learned until then stays."""


def warn_of_cut(name: str) -> None:
    """Say that an episode of an environment was cut."""
    warnings.warn(
        f"An evaluation episode of {name} did not end within {STEP_LIMIT:,} env steps and was cut "
        "there. Give the environment a time limit (max_episode_steps, or Gymnasium's TimeLimit).",
        stacklevel=2,
    )


def warn_of_time(name: str, ended: int, episodes: int) -> None:
    """Say that an evaluation had no time to end."""
    counted = "only those count" if ended else "what they had reached counts"
    warnings.warn(
        f"max_wall_seconds cut an evaluation of {name} when {ended} of {episodes} episodes had "
        f"ended; {counted}.",
        stacklevel=2,
    )
