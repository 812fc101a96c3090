"""Says that an evaluation had no time to end."""

from __future__ import annotations

import warnings


def warn_of_time(name: str, ended: int, episodes: int) -> None:
    """Say that an evaluation had no time to end."""
    counted = "only those count" if ended else "what they had reached counts"
    warnings.warn(
        f"max_wall_seconds cut an evaluation of {name} when {ended} of {episodes} episodes had "
        f"ended; {counted}.",
        stacklevel=2,
    )
