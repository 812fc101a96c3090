"""Stop signals that wait until nothing is half done."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from kytolly.environment.signals import STOP_SIGNALS, is_echo

HOST = "kytolly.loop.host"  # tensor code cannot hang


@contextlib.contextmanager
def deferred_signals() -> Iterator[Callable[[], None]]:
    """Hold back the first stop signal; gives `raise_pending`, which lets it through.

    Its own handler runs when that function is called, or after the block. A later signal is not
    held back, nor is the first where an environment hangs. Signals that are ignored, or that end
    the process without Python, stay as they are; outside the main thread all do.
    """
    pending, times = list[int](), list[float]()
    watchdog = None
    if HOST in sys.modules:  # not in the handler: a signal may come within another import
        watchdog = importlib.import_module("kytolly.loop.watchdog")
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {n: h for n in STOP_SIGNALS if is_main and callable(h := signal.getsignal(n))}

    def defer(number: int, frame: FrameType | None) -> None:
        if is_echo(times):
            return
        if pending:
            handlers[number](number, None)
        pending.append(number)
        if watchdog is not None:
            watchdog.watch_environments(raise_pending)

    def raise_pending() -> None:
        if pending:
            number = pending.pop()
            handlers[number](number, None)

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield raise_pending
    finally:
        if watchdog is not None:
            watchdog.end_watch()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    raise_pending()
