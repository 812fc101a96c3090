"""The signals that ask a process to stop: a run is saved first, and workers leave them to it."""

from __future__ import annotations

import signal

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
