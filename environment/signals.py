"""The signals that ask a process to stop: a run is saved first, and workers leave them to it."""

from __future__ import annotations

import signal
import time

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def is_echo(times: list[float], seconds: float = 0.5) -> bool:
    """Note when a signal came; True if it came with the first, as `timeout` sends two at once."""
    times.append(time.monotonic())
    return len(times) > 1 and times[-1] - times[0] < seconds
