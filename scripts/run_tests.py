"""Runs pyright and the tests: a few processes at a time, each with the tests of some folders.

TensorFlow keeps what it compiled until its process ends: a process for each group stays small.
Every test belongs to a group: what no group names is the last one's. Each process is a fork of
this one, which has imported TensorFlow and computed nothing: to import it takes four seconds.
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# What takes longest begins first, so that no core waits at the end.
GROUPS = (
    "tests/experiment/test_cluster.py tests/loop/test_actors.py",
    "tests/experiment tests/scripts tests/machine",
    "tests/deployment",
    "tests/loop",
    "tests/loop/test_population.py",
    "tests/loop/test_replicas.py tests/search/text/test_several_devices.py",
    "tests/search/reformulate",
    "tests/command",
    "tests/policy tests/model",
    "tests/trainer",
    "tests/search/text tests/search/model",
    "tests/family",
    "tests/search/command",
    "tests/agent tests/callback tests/learning",
    "tests/record tests/package",
    "tests/loop/test_host.py tests/loop/test_rows.py tests/loop/test_env_faults.py",
    "tests/trainer/test_recovery.py tests/trainer/test_environments.py",
    "tests/search/benchmark tests/search/index tests/benchmarks",
    "tests/environment tests/config",
)
REST = "tests"
TYPES = "pyright"


class Job(NamedTuple):
    """A process that runs, and the file of its output."""

    name: str
    begin: float
    output: Path


class Result(NamedTuple):
    """The end of a job."""

    name: str
    failed: bool
    seconds: float
    cpu_seconds: float
    output: str

    def line(self) -> str:
        """Its line of the summary, with the megabytes that it needed and what pytest counted."""
        words = ["FAILED" if self.failed else "passed"]
        words += [f"{self.seconds:4.0f} s, {self.cpu_seconds:4.0f} s of CPU", self.name]
        words += re.findall(r"^Peak of memory: (.*)$", self.output, re.MULTILINE)[-1:]
        words += re.findall(r"^=*\s*(\d+ .*?) in [\d.]+s\b", self.output, re.MULTILINE)[-1:]
        return "  ".join(words)


def jobs(options: list[str]) -> dict[str, list[str]]:
    """Name -> arguments of pytest, or the words of another command."""
    paths = [path for group in GROUPS for path in group.split()]
    found = {TYPES: [str(Path(sys.executable).with_name(TYPES)), "--pythonpath", sys.executable]}
    for group in (*GROUPS[:2], REST, *GROUPS[2:]):
        own = [path for path in group.split() if (ROOT / path).exists()]
        inside = [path for path in paths if path.startswith(tuple(f"{folder}/" for folder in own))]
        if own:  # `tests/search` may be absent
            found[group] = [*options, *own, *(f"--ignore={path}" for path in inside)]
    return found


def import_once() -> None:
    """Load what every process of the tests needs, as `tests/conftest.py` does."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import sqlite3  # noqa: F401 - before TensorFlow, whose own SQLite lacks FTS5

    import keras  # noqa: F401
    import tensorflow  # noqa: F401


def start(job: Job, words: list[str]) -> int:
    """The id of a new process for a job."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(job.output, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if job.name == TYPES:
            os.execv(words[0], words)
        import pytest

        status = int(pytest.main(words))
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_all(workers: int, waiting: list[tuple[str, list[str]]], folder: Path) -> list[Result]:
    """The ends of all jobs, of which a line is printed as each ends."""
    running: dict[int, Job] = {}
    results = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                name, words = waiting.pop(0)
                job = Job(name, time.monotonic(), folder / f"{len(waiting)}.txt")
                running[start(job, words)] = job
            pid, status, used = os.wait4(-1, 0)
            job = running.pop(pid)
            seconds, cpu_seconds = time.monotonic() - job.begin, used.ru_utime + used.ru_stime
            text = job.output.read_text("utf-8", errors="replace")
            results.append(Result(job.name, status != 0, seconds, cpu_seconds, text))
            print(results[-1].line(), flush=True)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGTERM)
    return results


def main(argv: list[str] | None = None) -> int:
    """Run all jobs, and print the output of those that failed last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    args, options = parser.parse_known_args(argv)
    os.chdir(ROOT)
    import_once()
    folder = tempfile.mkdtemp()  # a `TemporaryDirectory` would end with the first process
    try:
        results = run_all(args.workers, list(jobs(options).items()), Path(folder))
    finally:
        shutil.rmtree(folder)
    failed = [result for result in results if result.failed]
    for result in failed:
        print(f"\n===== {result.name} =====\n{result.output}")
    names = ", ".join(result.name for result in failed)
    print(f"{len(failed)} of {len(results)} jobs failed: {names}" if failed else "All passed.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
