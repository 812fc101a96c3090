import os
import signal
import subprocess
import sys
import threading

import pytest

from kytolly.command.exits import BadInput, exit_status
from kytolly.environment.faults import EnvironmentFault


@pytest.fixture(autouse=True)
def usual_handlers():
    """The handlers of a command in a terminal: whoever starts the tests may ignore signals."""
    usual = {signal.SIGINT: signal.default_int_handler}
    usual |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL)
    previous = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def fail_with(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    "error",
    [BadInput("a\nb"), ValueError("a b"), ModuleNotFoundError("a b"), EnvironmentFault("a b")],
)
def test_what_the_user_can_mend_is_one_line_and_status_2(error, capsys, monkeypatch):
    monkeypatch.delenv("KYTOLLY_TRACEBACK", raising=False)
    assert exit_status(fail_with(error)) == 2
    assert capsys.readouterr().err == "kytolly: a b\n"
    monkeypatch.setenv("KYTOLLY_TRACEBACK", "1")
    with pytest.raises(type(error)):
        exit_status(fail_with(error))


def test_an_error_of_ours_is_raised():
    with pytest.raises(ZeroDivisionError):
        exit_status(fail_with(ZeroDivisionError()))


def test_a_command_gives_its_own_status():
    assert [exit_status(lambda: 0), exit_status(lambda: 1)] == [0, 1]


@pytest.mark.parametrize("name, status", [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_is_an_interrupt_with_a_status_of_its_own(name, status, capsys):
    def command():
        try:
            signal.raise_signal(getattr(signal, name))
        except KeyboardInterrupt:  # as a trainer does, once it has saved
            raise KeyboardInterrupt("The run is saved.") from None

    before = signal.getsignal(getattr(signal, name))
    assert exit_status(command) == status
    assert signal.getsignal(getattr(signal, name)) is before
    assert capsys.readouterr().err == "kytolly: interrupted. The run is saved.\n"


def test_a_signal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert exit_status(lambda: signal.raise_signal(signal.SIGHUP) or 0) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_forked_worker_ends_at_once():
    def command():
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert exit_status(command) == -signal.SIGTERM


def test_a_thread_cannot_take_signals_and_needs_none():
    found = []
    thread = threading.Thread(target=lambda: found.append(exit_status(lambda: 0)))
    thread.start()
    thread.join()
    assert found == [0]


def test_an_interrupt_that_says_nothing_has_saved_nothing(capsys):
    assert exit_status(fail_with(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "kytolly: interrupted. Nothing was saved.\n"


TWICE = """
import hashlib, os, signal, threading, time
from kytolly.command.exits import exit_status
def command():
    def press():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press, daemon=True).start()
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)  # one call, in which no handler runs
exit_status(command)
"""


def test_a_second_signal_ends_at_once_what_handlers_cannot_interrupt():
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60)
    first, second = done.stderr.splitlines()
    assert done.returncode == 130
    assert "stopping as soon as nothing is half done" in first and "ended at once" in second


TOGETHER = """
import os, signal, time, types
from kytolly.command.exits import exit_status
from kytolly.environment import signals
signals.time = types.SimpleNamespace(monotonic=lambda: 0.0)  # however slow the machine is
def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:  # the command saves
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
print(exit_status(command))
"""


def test_signals_that_come_together_are_one():
    line = [sys.executable, "-c", TOGETHER]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "130\n")
    assert "ended at once" not in done.stderr and "interrupted" in done.stderr


def test_the_signal_of_a_forked_worker_is_not_the_second_of_its_parent():
    def command():
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, lambda *_: None)
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert exit_status(command) == 0


def test_a_file_that_cannot_be_used_is_named_in_one_line(capsys, tmp_path):
    assert exit_status(lambda: len(tmp_path.read_text())) == 2
    assert f"{tmp_path} cannot be used (Is a directory), expected" in capsys.readouterr().err
