"""A limit of time for each call of an environment in this process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

AGAIN_SECONDS = 1.0  # after which a call that goes on is interrupted once more


class Hangs(BaseException):
    """A call has not returned in time; no Exception, which an environment may catch itself."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[Callable[[], object]]:
    """Raise `Hangs` in the block where too much time has passed since the last call of its value.

    It needs the main thread and a system with SIGALRM, else there is no limit; and code that never
    returns to Python, such as an endless loop in C, goes on.

    Args:
        seconds: The limit.

    Yields:
        A function that begins the time anew.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        place = "" if frame is None else f", in {frame.f_code.co_name}() "
        place += "" if frame is None else f"at {frame.f_code.co_filename}:{frame.f_lineno}"
        raise Hangs(f"a call of the environment did not return within {seconds:g} seconds{place}")

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer"):
        yield lambda: None
        return
    previous = signal.signal(signal.SIGALRM, interrupt)

    def begin() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)

    begin()
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
