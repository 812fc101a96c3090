"""Lets a stop signal through while a call of an environment in this process hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

LOOK_SECONDS = 5.0  # between two looks; a call that goes on at both hangs
ENVIRONMENTS = "kytolly.environment.gym."


def watch_environments(deliver: Callable[[], None]) -> None:
    """From now on, look at what the main thread does; `deliver` when it hangs in an environment.

    Called in the main thread. Nothing happens where the system has no timer, or somebody uses it.
    """
    if not hasattr(signal, "setitimer"):
        return
    if (
        signal.getsignal(signal.SIGALRM) != signal.SIG_DFL
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        return
    calls: list[FrameType | None] = [None]

    def look(number: int, frame: FrameType | None) -> None:
        call = environment_call(frame)
        if call is not None and call is calls[0]:
            deliver()
        calls[0] = call

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
    found = None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(ENVIRONMENTS):
            found = frame
        frame = frame.f_back
    return found
