"""The end of a command: its exit status, and one line where something is wrong."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from kytolly.config.words import PREFIX
from kytolly.environment.faults import one_line
from kytolly.environment.signals import STOP_SIGNALS, is_echo
from kytolly.loop.recovery import detail, disk_problem, is_out_of_memory

MAX_MESSAGE = 1_000  # characters of a message
UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)
PATIENCE_SECONDS = 1.0  # after a first signal, before a line says that it was seen

# A forked worker must not report the signals that it gets as those of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


class BadInput(Exception):
    """Something that the user gave does not fit; the message is one line."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage text."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  it is overloaded
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[Any, list[str]]:
        """Refuse `--flag=--`: of that argparse makes an empty list, whatever type the flag has."""
        for word in args or ():
            if word == "--":  # what follows are no flags
                break
            if word.startswith("-") and word.endswith("=--"):
                self.error(f"argument {word[:-3]}: '--' was found, expected a value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise BadInput(f"{message}. `{self.prog} --help` shows what is possible.")


def exit_status(command: Callable[[], int]) -> int:
    """Run a command; returns its exit status.

    0: done. 2: bad input. 1: anything else. 130, 143, 129: stopped by Ctrl-C, SIGTERM or SIGHUP.
    Errors of this project are raised; KYTOLLY_TRACEBACK=1 raises those of bad input too. A second
    signal ends the process at once.
    """
    with end_at_second_signal(), stop_signals() as received:
        try:
            status = command()
            if sys.stdout is not None:  # as after `>&-`
                sys.stdout.flush()  # a full disk shows now, while it can be said
            return status
        except BrokenPipeError:  # whoever read has gone, as in `kytolly evaluate RUN | head -1`
            silence_standard_output()
            return 1
        except KeyboardInterrupt as stop:
            print_problem(f"interrupted. {str(stop) or 'Nothing was saved.'}")
            return 128 + (received[0] if received else signal.SIGINT)
        except Exception as error:
            problem = users_problem(error)
            if os.environ.get("KYTOLLY_TRACEBACK") or problem is None:
                raise
            notes = getattr(error, "__notes__", ())
            print_problem(" ".join((f"{problem.rstrip('.')}.", *notes)) if notes else problem)
            if type(error).__name__ == "DeviceFailed":
                return 1
            if not disk_problem(error):
                return 2
            silence_standard_output()
            return 1


@contextlib.contextmanager
def end_at_second_signal() -> Iterator[None]:
    """Watch for stop signals in a thread, which sees them while the main thread is compiling.

    Python runs handlers between two of its own steps; a long call of TensorFlow is one step.
    """
    if threading.current_thread() is not threading.main_thread() or os.name == "nt":
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch_signals, args=(reader,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writer)
        thread.join()
        os.close(reader)


def watch_signals(reader: int) -> None:
    """Read the numbers of signals until the other end is closed; the second one ends the process.

    If the first has not ended the command within a second, a line says what it waits for.
    """
    times: list[float] = []
    patience = None
    while True:
        if not select.select([reader], [], [], patience)[0]:
            print_problem("stopping as soon as nothing is half done; once more ends it at once.")
            patience = None
            continue
        number = os.read(reader, 1)
        if not number:
            return
        # A signal that is ignored never arrives here.
        if number[0] not in STOP_SIGNALS or is_echo(times):
            continue
        patience = PATIENCE_SECONDS
        if len(times) > 1:
            print_problem("ended at once: what came after the newest checkpoint is lost.")
            os._exit(128 + number[0])


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Make every stop signal a KeyboardInterrupt; gives the list of those received."""
    received: list[int] = []
    times: list[float] = []
    owner = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() != owner and number != signal.SIGINT:  # a forked worker just ends
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if is_echo(times):
            return
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


def silence_standard_output() -> None:
    """Let what could not be written to standard output go, or Python tries once more at its end."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_problem(message: str) -> None:
    """Print one line on standard error; of a very long one the middle is left out."""
    print(f"{PREFIX}{one_line(message, MAX_MESSAGE)}", file=sys.stderr)


def end_of_many(failed: int, total: int, what: str, go_on: str) -> int:
    """The exit status of a command that trained several; says how many failed, if any.

    Args:
        failed: How many, each of which was reported.
        total: Of how many.
        what: What they are, such as "seeds".
        go_on: Sentence that says how to continue.
    """
    if not failed:
        return 0
    print_problem(
        f"{failed} of {total} {what} failed, for the reasons above; the others are whole. {go_on}"
    )
    return 1


def users_problem(error: Exception) -> str | None:
    """One line for the user: of a file its name, what is wrong with it and what to do.

    None where neither the input nor the environment is wrong, but this library.
    """
    if isinstance(error, (BadInput, ValueError, ModuleNotFoundError)) or says_what_to_do(error):
        return str(error)
    if full := disk_problem(error):
        name = getattr(error, "filename", None) or "a file"
        return (
            f"{name} cannot be written ({full}), expected room on the disk. Make room; what was "
            "written before is whole."
        )
    if isinstance(error, OSError):
        if error.filename is not None:
            return (
                f"{error.filename} cannot be used ({error.strerror}), expected a file or folder "
                "that can be read and written. Mend it or choose another."
            )
        if error.errno in UNWRITABLE:
            return (
                f"a file cannot be read or written ({error.strerror}), expected that it can. Mend "
                "its folder or choose another."
            )
    elif is_out_of_memory(error):
        return (
            f"out of memory ({detail(error)}), expected that the work fits. Make it smaller, or "
            "end other programs."
        )
    return None


def says_what_to_do(error: Exception) -> bool:
    """True for an error of ours that is one line for the user."""
    ours = {"DeviceFailed", "EnvironmentFault", "OutOfMemory", "NotWritten"}
    return any(kind.__name__ in ours for kind in type(error).__mro__)
