"""How a command ends: its exit status, and one line on standard error where something is wrong."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

# With each of these signals a run is saved first; the exit status is 128 and its number.
STOP_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class BadInput(Exception):
    """Something that the user gave does not fit; the message is one line."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise BadInput(f"{message}. `{self.prog} --help` shows what is possible.")


def exit_status(command: Callable[[], int]) -> int:
    """Run a command; returns its exit status.

    0: done. 2: bad input. 1: anything else. 130, 143, 129: stopped by Ctrl-C, SIGTERM or SIGHUP.
    Errors of this project are raised; KYTOLLY_TRACEBACK=1 raises those of bad input too.
    """
    with stop_signals() as received:
        try:
            return command()
        except KeyboardInterrupt as stop:
            print_problem(f"interrupted. {stop}")
            return 128 + (received[0] if received else signal.SIGINT)
        except Exception as error:
            if os.environ.get("KYTOLLY_TRACEBACK") or not is_users_problem(error):
                raise
            print_problem(str(error))
            return 2


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Make every stop signal a KeyboardInterrupt; gives the list of those received."""
    received: list[int] = []
    owner = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() != owner and number != signal.SIGINT:  # a forked worker just ends
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # Python refuses handlers there
        yield received
        return
    ours = [n for n in STOP_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]  # as nohup sets
    previous = {number: signal.signal(number, interrupt) for number in ours}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def print_problem(message: str) -> None:
    """Print one line on standard error."""
    print(f"kytolly: {' '.join(message.split())}", file=sys.stderr)


def is_users_problem(error: Exception) -> bool:
    """Whether the user's input or environment, not this library, did something wrong."""
    if isinstance(error, (BadInput, ValueError, ModuleNotFoundError)):
        return True
    return any(kind.__name__ == "EnvironmentFault" for kind in type(error).__mro__)
