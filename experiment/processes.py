"""Runs of `kytolly train` in processes of their own, several at a time.

TensorFlow keeps what it compiled until a process ends, and a run that fails takes its process with
it: so each run has one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from kytolly.config.words import PREFIX
from kytolly.machine.facts import available_memory_bytes
from kytolly.machine.hardware import usable_cores
from kytolly.record.files import open_regular
from kytolly.record.metrics_file import evaluations
from kytolly.record.saved_run import read_result

ROOT = Path(__file__).absolute().parents[2]  # the folder that holds the package kytolly
# On Linux a child gets SIGTERM when its parent dies: it saves its run and ends.
START = (
    "import ctypes, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 15)\n"
    "from kytolly.command.entry import entry; entry()"
)
POLL_SECONDS = 0.2
BYTES_PER_RUN = 2**30  # a process with TensorFlow and a small program takes about 0.9 GB
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

Report = Callable[[str], None]  # shows a line of progress to the user


class Process(Protocol):
    """As much of a `subprocess.Popen` as a child needs, wherever it runs."""

    returncode: int | None

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        ...

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        ...


@dataclasses.dataclass
class ChildRun:
    """One run in a process of its own, or several.

    Attributes:
        name: What it is called for a reader, such as `seed 3`.
        run_dir: The run's folder. What the process prints is in a file `.log` beside it.
        words: The command line after `kytolly`: train ALGO --env ENV, then options.
        members: The folders that the process writes where it trains several runs, as paths in the
            folder that `run_dir` is in.
        stopped: Its process was told to stop.
        reported: The lines that `new_warnings` has given so far.
    """

    name: str
    run_dir: Path
    words: Sequence[str]
    members: Sequence[str] = ()
    stopped: bool = False
    reported: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    _process: Process | None = None
    _began: float = 0.0
    _num_evaluations: int = 0
    _log_position: int = 0

    @property
    def folder(self) -> Path:
        """The folder in which all is that the process writes."""
        return self.run_dir.parent if self.members else self.run_dir

    @property
    def log(self) -> Path:
        """The file with what the process prints."""
        return self.run_dir.with_name(f"{self.run_dir.name}.log")

    @property
    def process(self) -> Process:
        """The process, which has been started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process

    def start(self, threads: int) -> None:
        """Start a process on this machine, with so many threads of TensorFlow."""
        with open(self.log, "wb", opener=open_regular) as log:
            self.begin(start_process(self.words, threads, log))

    def begin(self, process: Process) -> None:
        """Take a process that has just been started; time counts from here."""
        self._process, self._began = process, time.perf_counter()

    def has_ended(self) -> bool:
        """True when the process has ended."""
        if self.process.poll() is None:
            return False
        self.seconds = time.perf_counter() - self._began
        return True

    def stop(self) -> None:
        """Ask the process to save its run and to end; the second call ends it at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.stopped = True

    def stop_if_started(self) -> None:
        """Stop the process, where there is one, and wait for its end."""
        if self._process is not None:
            self.stop()
            self._process.wait()

    def new_evaluations(self) -> list[tuple[int, float]]:
        """Env steps and mean return of the evaluations since the last call."""
        known = []
        with contextlib.suppress(ValueError, OSError):  # the file is being written
            known = evaluations(self.run_dir)
        new = known[self._num_evaluations :]
        self._num_evaluations = max(self._num_evaluations, len(known))
        return new

    def new_lines(self) -> list[str]:
        """The lines that the process has printed since the last call."""
        if self._process is None:
            return []
        with self.log.open("rb") as log:
            log.seek(self._log_position)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._log_position += len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def new_warnings(self) -> list[str]:
        """The run's messages since the last call, besides its progress.

        Nothing before it has begun: then it says why it cannot, which `problem` gives.
        """
        if not (self.run_dir / "config.yaml").is_file():
            return []
        lines = self.new_lines()
        new = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
        self.reported += new
        return new

    def result(self) -> dict[str, Any] | None:
        """The run's result; None where it has none."""
        return read_result(self.run_dir)

    def never_began(self) -> bool:
        """True where the input was refused before the run had a folder."""
        return self.process.returncode == 2 and not self.run_dir.exists()

    def problem(self) -> str:
        """The reason why the process did not end well, in one line."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        ours = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
        status = self.process.returncode or 0
        if status < 0:
            number = -status
            return f"its process was ended by signal {number}; {self.log} has what it printed"
        return (ours or lines or [f"it ended with status {status}"])[-1]


Start = Callable[[ChildRun, int], None]  # starts a child's process with so many threads


def start_process(
    words: Sequence[str], threads: int, log: IO[bytes], cwd: Path | None = None
) -> subprocess.Popen:
    """Start `kytolly` with these words, and so many threads of TensorFlow."""
    path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
    limits = dict.fromkeys(THREADS, str(threads))
    return subprocess.Popen(
        # -P: not from the current folder, where files of strangers may lie
        [sys.executable, "-P", "-c", START, *words],
        env={**limits, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        cwd=cwd,
        start_new_session=True,  # Ctrl-C reaches it once, by `stop`
    )


def default_jobs() -> int:
    """Processes at a time: one for each core, as far as memory suffices."""
    free = available_memory_bytes()
    fit = usable_cores() if free is None else free // BYTES_PER_RUN
    return max(1, min(usable_cores(), fit))


def run_children(
    jobs: int,
    next_child: Callable[[], ChildRun | None],
    on_poll: Callable[[ChildRun], None],
    on_end: Callable[[ChildRun], None],
    start: Start = ChildRun.start,
) -> None:
    """Keep `jobs` processes busy until there is no next child; whatever happens, none is left.

    Args:
        jobs: Processes at a time.
        next_child: The next run, which has not started; None where there is none now.
        on_poll: Called with every running child, again and again, and once more when it has ended.
        on_end: Called with each child that has ended.
        start: Starts a child's process, with so many threads: here, or as
            `experiment.cluster.Cluster.start` does elsewhere.
    """
    running: list[ChildRun] = []
    threads = max(1, usable_cores() // jobs)
    try:
        while True:
            while len(running) < jobs and (child := next_child()) is not None:
                start(child, threads)
                running.append(child)
            if not running:
                return
            time.sleep(POLL_SECONDS)
            for child in list(running):
                ended = child.has_ended()
                on_poll(child)
                if ended:
                    running.remove(child)
                    on_end(child)
    finally:
        for child in running:
            child.stop()
        for child in running:
            child.process.wait()
