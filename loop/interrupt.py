"""Stop signals that wait for a moment at which nothing is half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
LOOK_SECONDS = 5.0  # between two looks, after a signal, at whether an environment hangs
ENVIRONMENTS = "kytolly.environment.gym."


@contextlib.contextmanager
def hold_signals() -> Iterator[Callable[[], None]]:
    """Hold back the first stop signal; gives the function that lets it through.

    Its own handler runs when that function is called, or after the block. A second signal is not
    held back, and the first no longer where one call of an environment goes on at two looks, each
    after LOOK_SECONDS: it hangs. Signals that are ignored, or that end the process without Python,
    stay as they are; so do all of them outside the main thread.
    """
    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    handlers = {n: h for n in numbers if is_main and callable(h := signal.getsignal(n))}

    watched = can_watch() and bool(handlers)
    calls: list[FrameType | None] = [None]

    def hold(number: int, frame: object) -> None:
        if held:
            handlers[number](number, None)
        held.append(number)
        if watched:
            signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)

    def deliver() -> None:
        if held:
            number = held.pop()
            handlers[number](number, None)

    def look(number: int, frame: FrameType | None) -> None:
        call = environment_call(frame)
        if call is not None and call is calls[0]:
            deliver()
        calls[0] = call

    for number in handlers:
        signal.signal(number, hold)
    if watched:
        signal.signal(signal.SIGALRM, look)
    try:
        yield deliver
    finally:
        if watched:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    deliver()


def can_watch() -> bool:
    """Whether there is a timer that nobody else uses."""
    if not hasattr(signal, "SIGALRM") or not hasattr(signal, "setitimer"):
        return False
    unused = signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    return unused and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def environment_call(frame: FrameType | None) -> FrameType | None:
    """The outermost call of an adapter around environments that a frame runs within."""
    found = None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(ENVIRONMENTS):
            found = frame
        frame = frame.f_back
    return found
