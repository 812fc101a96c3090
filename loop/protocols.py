"""What a session drives."""

from __future__ import annotations

import math
import warnings
from typing import Any, Protocol

from kytolly.callback.base import Evaluation
from kytolly.loop.metrics import LoopMetrics

STEP_LIMIT = 20_000  # env steps; ends an evaluation episode where the environment never does


class OutOfTime(Exception):
    """Time was up within a call of a loop; what it has learned until then stays."""


class Loop(Protocol):
    """What a session drives: `loop.device.DeviceLoop` or `loop.host.HostLoop`."""

    @property
    def trackables(self) -> dict[str, Any]:
        """TensorFlow objects that a checkpoint holds beside the agent."""
        ...

    @property
    def xla(self) -> bool:
        """Whether it is compiled with XLA; known after the first call."""
        ...

    @property
    def env_restarts(self) -> int | None:
        """Environments that were made anew after a fault; None where a fault ends the run."""
        ...

    def run(self, env_steps: int, deadline: float = math.inf) -> LoopMetrics:
        """Train for at least this many env steps; 0 only compiles.

        Raises:
            OutOfTime: `time.perf_counter()` is past the `deadline`, where the loop can look.
        """
        ...

    def close(self) -> None:
        """Release environments and threads."""
        ...


class Evaluator(Protocol):
    """Plays greedy episodes with the network as it is now."""

    def evaluate(self, number: int = 0, deadline: float = math.inf) -> Evaluation:
        """Other episodes for each `number`, whatever was played before.

        If `time.perf_counter()` passes the `deadline`, only episodes that have ended count, or,
        where none has, what all of them have reached.
        """
        ...


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
