"""A watchdog for calls of environments that hang while a stop signal waits."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

LOOK_SECONDS = 5.0  # between two looks; a call that goes on at both hangs
ENVIRONMENTS = "kytolly.environment.gym."


def watch_environments(raise_pending: Callable[[], None]) -> None:
    """From now on, look at what the main thread does; `raise_pending` when an environment hangs.

    Called in the main thread. Nothing happens where the system has no timer, or somebody uses it.
    """
    if not hasattr(signal, "setitimer"):
        return
    if (
        signal.getsignal(signal.SIGALRM) != signal.SIG_DFL
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        return
    previous: FrameType | None = None

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal previous
        call = environment_call(frame)
        if call is not None and call is previous:
            raise_pending()
        previous = call

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)


def end_watch() -> None:
    """Look no more."""
    if hasattr(signal, "SIGALRM"):
        if getattr(signal.getsignal(signal.SIGALRM), "__module__", None) != __name__:
            return
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def environment_call(frame: FrameType | None) -> FrameType | None:
    """The outermost call of an adapter around environments that a frame runs within."""
    outermost = None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(ENVIRONMENTS):
            outermost = frame
        frame = frame.f_back
    return outermost
