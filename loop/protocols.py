"""What a session drives."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

from kytolly.callback.base import Evaluation
from kytolly.loop.metrics import LoopMetrics

STEP_LIMIT = 20_000  # env steps; ends an evaluation episode where the environment never does


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

    def run(self, env_steps: int) -> LoopMetrics:
        """Train for at least this many env steps; 0 only compiles."""
        ...

    def close(self) -> None:
        """Release environments and threads."""
        ...


class Evaluator(Protocol):
    """Plays greedy episodes with the network as it is now."""

    def evaluate(self, number: int = 0) -> Evaluation:
        """Other episodes for each `number`, whatever was played before."""
        ...


def warn_of_cut(name: str) -> None:
    """Say that an episode of an environment was cut."""
    warnings.warn(
        f"An evaluation episode of {name} did not end within {STEP_LIMIT:,} env steps and was cut "
        "there. Give the environment a time limit (max_episode_steps, or Gymnasium's TimeLimit).",
        stacklevel=2,
    )
