"""Runs pyright and the tests: a few processes at a time, each with the tests of some folders.

TensorFlow keeps what it compiled until its process ends: a process for each group stays small.
Every test belongs to a group: what no group names is the last one's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# What takes longest begins first, so that no core waits at the end.
GROUPS = (
    "tests/loop",
    "tests/trainer",
    "tests/search/reformulate",
    "tests/family",
    "tests/search/text tests/search/model",
    "tests/search/command",
    "tests/command",
    "tests/deployment",
    "tests/agent tests/callback",
    "tests/policy tests/model",
    "tests/learning",
    "tests/experiment tests/scripts tests/machine",
    "tests/environment tests/config",
    "tests/record tests/package",
    "tests/search/benchmark tests/search/index tests/benchmarks",
)


class Result(NamedTuple):
    """One job's end."""

    name: str
    failed: bool
    seconds: float
    output: str

    def line(self) -> str:
        """Its line of the summary: what pytest counted, and the megabytes that it needed."""
        counted = re.findall(r"^(?:=+ )?(\d+ [a-z].*?) in [\d.]+s", self.output, re.MULTILINE)
        peak = re.findall(r"^Peaks? of memory: (.*)$", self.output, re.MULTILINE)
        words = ["FAILED" if self.failed else "passed", f"{self.seconds:4.0f} s", self.name]
        return "  ".join([*words, *peak[-1:], *counted[-1:]])


def jobs(options: list[str]) -> dict[str, list[str]]:
    """Name -> words of each process. The last group has what is in no other."""
    bin_folder = Path(sys.executable).parent
    pytest = [sys.executable, "-m", "pytest", *options]
    words = {}
    for group in GROUPS:
        folders = [folder for folder in group.split() if (ROOT / folder).exists()]
        if folders:  # `tests/search` may be absent
            words[group] = [*pytest, *folders]
    ignored = [f"--ignore={folder}" for group in GROUPS for folder in group.split()]
    words["all other tests"] = [*pytest, "tests", *ignored]
    words["pyright"] = [str(bin_folder / "pyright"), "--pythonpath", sys.executable]
    return words


def run(name: str, words: list[str]) -> Result:
    """The end of one process, whose output is kept until then."""
    begin = time.monotonic()
    done = subprocess.run(
        words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    seconds, output = time.monotonic() - begin, done.stdout.decode(errors="replace")
    return Result(name, done.returncode != 0, seconds, output)


def main(argv: list[str] | None = None) -> int:
    """Print a line for each job as it ends, then the output of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args, options = parser.parse_known_args(argv)
    words = jobs(options)
    results = []
    pool = ThreadPoolExecutor(args.workers)
    try:
        for future in as_completed([pool.submit(run, *job) for job in words.items()]):
            results.append(future.result())
            print(results[-1].line(), flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    failed = [result for result in results if result.failed]
    for result in failed:
        print(f"\n===== {result.name} =====\n{result.output}")
    names = ", ".join(result.name for result in failed)
    print(f"{len(failed)} of {len(results)} jobs failed: {names}" if failed else "All passed.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
