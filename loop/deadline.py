"""What is said of calls and evaluations that the clock ends."""

import warnings


class OutOfTime(Exception):
    """Time was up within a call of a loop; what it has learned until then stays."""


def warn_of_time(name: str, ended: int, episodes: int) -> None:
    """Say that an evaluation had no time to end."""
    counted = "only those count" if ended else "what they had reached counts"
    warnings.warn(
        f"max_wall_seconds cut an evaluation of {name} when {ended} of {episodes} episodes had "
        f"ended; {counted}.",
        stacklevel=2,
    )
