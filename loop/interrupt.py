"""Stop signals that wait for a moment at which nothing is half done."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from kytolly.environment.signals import STOP_SIGNALS

HOST, HANGS = "kytolly.loop.host", "kytolly.loop.hangs"  # tensor code cannot hang


@contextlib.contextmanager
def hold_signals() -> Iterator[Callable[[], None]]:
    """Hold back the first stop signal; gives the function that lets it through.

    Its own handler runs when that function is called, or after the block. A second signal is not
    held back, nor is the first where an environment hangs (`loop.hangs`). Signals that are ignored,
    or that end the process without Python, stay as they are; so do all of them outside the main
    thread.
    """
    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {n: h for n in STOP_SIGNALS if is_main and callable(h := signal.getsignal(n))}

    def hold(number: int, frame: object) -> None:
        if held:
            handlers[number](number, None)
        held.append(number)
        if HOST in sys.modules:
            from kytolly.loop.hangs import watch_environments

            watch_environments(deliver)

    def deliver() -> None:
        if held:
            number = held.pop()
            handlers[number](number, None)

    for number in handlers:
        signal.signal(number, hold)
    try:
        yield deliver
    finally:
        if HANGS in sys.modules:
            sys.modules[HANGS].end_watch()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    deliver()
