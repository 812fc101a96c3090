"""What a session drives."""

from __future__ import annotations

from typing import Any, Protocol

from kytolly.callback.base import Evaluation
from kytolly.loop.metrics import LoopMetrics


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
