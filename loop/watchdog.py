"""Stop signals that wait until nothing is half done, and a watchdog for calls that hang."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from kytolly.environment.signals import STOP_SIGNALS

LOOK_SECONDS = 5.0  # between two looks; a call that goes on at both hangs
ENVIRONMENTS = "kytolly.environment.gym."
HOST = "kytolly.loop.host"  # tensor code cannot hang


@contextlib.contextmanager
def deferred_signals() -> Iterator[Callable[[], None]]:
    """Hold back the first stop signal; gives `raise_pending`, which lets it through.

    Its own handler runs when that function is called, or after the block. A second signal is not
    held back, nor is the first where an environment hangs. Signals that are ignored, or that end
    the process without Python, stay as they are; so do all of them outside the main thread.
    """
    pending: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {n: h for n in STOP_SIGNALS if is_main and callable(h := signal.getsignal(n))}

    def defer(number: int, frame: FrameType | None) -> None:
        if pending:
            handlers[number](number, None)
        pending.append(number)
        if HOST in sys.modules:
            watch_environments(raise_pending)

    def raise_pending() -> None:
        if pending:
            number = pending.pop()
            handlers[number](number, None)

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield raise_pending
    finally:
        end_watch()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    raise_pending()


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
