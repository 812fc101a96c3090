"""Processes that take turns, and their medians: the core of `kytolly benchmark`.

Everything that is measured runs in a process of its own. The contenders of a comparison take turns,
A B A B, all on the same core where the platform can pin a process to one. Every number is the
median over the turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kytolly.benchmarks.program import Result

if TYPE_CHECKING:
    from rich.progress import Progress

ROOT = Path(__file__).absolute().parents[2]  # the folder that holds the package kytolly
COMMAND = "kytolly.command.entry"  # the module behind the command `kytolly`
INSTALL = 'pip install "kytolly[benchmark]"'
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
PINNED_START = (
    "import os, runpy, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); "
    "sys.argv[:] = sys.argv[2:]; runpy.run_module(sys.argv[0], None, '__main__', True)"
)
CLOCKS = ("wall", "cpu")
TRIAL_STEPS = 400  # steps of a trial run, whatever its table needs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command line.

    Attributes:
        repeats: Turns behind each median.
        env: One environment instead of all, where a table has several.
        seeds: Seeds of each environment, where a table trains; None takes the table's own number.
        figure: File for the plot of the learning curves, where a table has some.
        collection: Folder of a collection in the BEIR layout, where a table searches one.
        algorithm: One algorithm instead of all, where a table has several.
        log_dir: Folder that keeps the runs, where a table trains many: they are not made again.
        quick: A trial run of the table itself: its numbers mean nothing.
        algorithms: The algorithms of a table that compiles programs; none means all.
        gpu: The GPU that they are compiled for.
        kernels: Name the kernels.
        launch_microseconds, wait_microseconds: What a GPU is taken to need, instead of the
            defaults of `machine.gpu_costs`.
    """

    repeats: int = 3
    env: str | None = None
    seeds: int | None = None
    figure: str | None = None
    collection: str | None = None
    algorithm: str | None = None
    log_dir: str | None = None
    quick: bool = False
    algorithms: tuple[str, ...] = ()
    gpu: str | None = None
    kernels: bool = False
    launch_microseconds: float | None = None
    wait_microseconds: float | None = None

    def count(self, usual: int) -> str:
        """The number of steps: `usual`, or few in a trial run."""
        return str(min(usual, TRIAL_STEPS) if self.quick else usual)

    def as_flags(self) -> str:
        """The options as they are written on the command line."""
        names = (
            "algorithm", "env", "seeds", "figure", "collection", "log_dir", "gpu",
            "launch_microseconds", "wait_microseconds",
        )  # fmt: skip
        given = {name.replace("_", "-"): getattr(self, name) for name in names}
        flags = [f"--{name} {value}" for name, value in given.items() if value is not None]
        switches = ["--kernels"] * self.kernels + ["--quick"] * self.quick
        return " ".join([*self.algorithms, f"--repeats {self.repeats}", *flags, *switches])


class Report(NamedTuple):
    """One table: for a reader (title to notes), and every number for a program (data)."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    data: Mapping[str, Any]


class Contender(NamedTuple):
    """One contender: a program that prints one JSON object as its last line.

    Attributes:
        name: Name in the table.
        module, arguments: Module to run, and its command line.
        needs: Packages without which it cannot run.
        missing: Why it cannot run, if that is known already.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    missing: str = ""

    def why_absent(self) -> str:
        """Why it cannot run here, or nothing."""
        installed = all(importlib.util.find_spec(name) for name in self.needs)
        return self.missing or ("" if installed else INSTALL)


class ChildFailed(Exception):
    """A program ended with an error; the message is the last line it printed."""


class Watch:
    """The progress display on standard error, a `rich.progress.Progress`."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.task = progress.add_task("", total=None)

    def begin(self, turns: int) -> None:
        """Start a table of so many turns."""
        self.progress.reset(self.task, total=turns)

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """Show one turn while it runs, then count it."""
        self.progress.update(self.task, description=what)
        yield
        self.progress.advance(self.task)


def progress_display() -> Progress:
    """A rich progress display that leaves nothing behind."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,  # else it ends with a blank line
    )


def run_module(
    module: str, arguments: Sequence[str], core: int | None = None, environ: Mapping[str, str] = {}
) -> Result:
    """Run a module in a process of its own; returns the object in its last line of output.

    Args:
        module: Name of the module, as after `python -m`.
        arguments: Its command line.
        core: The only core that the process may use, from before its first import; None for all.
        environ: Environment variables beside those of this process.

    Raises:
        ChildFailed: It did not end with status 0.
    """
    start = ["-m", module] if core is None else ["-c", PINNED_START, str(core), module]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    ended = subprocess.run(
        [sys.executable, "-P", *start, *arguments],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"ended with status {ended.returncode}"]
        raise ChildFailed(lines[-1])
    return json.loads(ended.stdout.splitlines()[-1])


def one_core() -> int | None:
    """The core that processes are pinned to; None where the platform cannot."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(affinity(0)) if affinity else None


def pinned_to(core: int | None) -> str:
    """The words that say where processes ran."""
    return "not pinned to a core" if core is None else f"each process pinned to core {core}"


def run_in_turns(
    contenders: Sequence[Contender],
    repeats: int,
    watch: Watch,
    core: int | None,
    *,
    all_ours: bool = False,
    environ: Mapping[str, str] = CPU_ONLY,
) -> tuple[dict[str, list[Result]], dict[str, str]]:
    """Let the contenders take turns.

    Args:
        contenders: The first is ours.
        repeats: Turns of each.
        watch: Shows progress.
        core: The core that every process is pinned to, or None.
        all_ours: The others are ours, too.
        environ: Environment variables beside those of this process.

    Returns:
        What each contender printed, turn by turn, and why the others did not run.

    Raises:
        RuntimeError: A contender that is ours failed.
    """
    absent = {
        contender.name: reason for contender in contenders if (reason := contender.why_absent())
    }
    results: dict[str, list[Result]] = {
        contender.name: [] for contender in contenders if contender.name not in absent
    }
    watch.begin(repeats * len(results))
    for turn in range(repeats):
        for contender in contenders:
            if contender.name in absent:
                continue
            with watch.turn(f"{contender.name}, {turn + 1} of {repeats}"):
                try:
                    result = run_module(contender.module, contender.arguments, core, environ)
                except ChildFailed as error:
                    if all_ours or contender is contenders[0]:
                        raise RuntimeError(f"{contender.name}: {error}") from error
                    absent[contender.name] = f"failed: {error}"
                    results.pop(contender.name)
                else:
                    results[contender.name].append(result)
    return results, absent


def missing_row(name: str, reason: str) -> tuple[list[str], dict[str, Any]]:
    """The cells and the data of a contender that did not run."""
    return [f"{name}: {reason}"], {"name": name, "missing": reason}


def medians(results: Sequence[Result], unit: str) -> dict[str, float]:
    """Medians over the turns of one contender; `unit` is env_steps, updates or episodes."""
    walls = [result["wall_seconds"] / result[unit] for result in results]
    cpus = [result["cpu_seconds"] / result[unit] for result in results]
    return {
        f"{unit}_per_second": 1 / statistics.median(walls),
        "slowest_per_second": 1 / max(walls),
        "fastest_per_second": 1 / min(walls),
        "wall_microseconds": 1e6 * statistics.median(walls),
        "cpu_microseconds": 1e6 * statistics.median(cpus),
        "compile_seconds": statistics.median(result["compile_seconds"] for result in results),
    }


def cells(row: Mapping[str, float], unit: str) -> dict[str, str]:
    """A contender's medians for the reader, by column."""
    return {
        f"{unit.replace('_', ' ')}/s": f"{row[f'{unit}_per_second']:,.0f}",
        "slowest, fastest": "{slowest_per_second:,.0f}, {fastest_per_second:,.0f}".format(**row),
        "wall µs": f"{row['wall_microseconds']:,.1f}",
        "CPU µs": f"{row['cpu_microseconds']:,.1f}",
        "compile s": f"{row['compile_seconds']:.1f}",
    }


def comparison(
    title: str,
    unit: str,
    contenders: Sequence[Contender],
    options: Options,
    watch: Watch,
    pinned: bool = True,
) -> Report:
    """Measure the first contender, which is ours, against the others; returns the table."""
    core = one_core() if pinned else None
    results, absent = run_in_turns(contenders, options.repeats, watch, core)
    ours = medians(results[contenders[0].name], unit)
    rows = []
    data = []
    for contender in contenders:
        if contender.name in absent:
            shown, missing = missing_row(contender.name, absent[contender.name])
            rows.append(shown)
            data.append(missing)
            continue
        theirs = medians(results[contender.name], unit)
        wall, cpu = (
            theirs[f"{clock}_microseconds"] / ours[f"{clock}_microseconds"] for clock in CLOCKS
        )
        ratios = {"kytolly_wall_ratio": wall, "kytolly_cpu_ratio": cpu}
        data.append({"name": contender.name, **theirs, **ratios, "runs": results[contender.name]})
        last = ["", ""] if contender is contenders[0] else [f"{wall:.2f}x", f"{cpu:.2f}x"]
        rows.append([contender.name, *cells(theirs, unit).values(), *last])
    where = pinned_to(core) if pinned else "all cores free"
    word = unit.replace("_", " ").removesuffix("s")
    notes = [
        f"Median of {options.repeats} turns, the contenders in turn, {where}, on the CPU. "
        f"Microseconds are for one {word}. The last two columns are Kytolly's speed over theirs."
    ]
    columns = ["", *cells(ours, unit), "wall ratio", "CPU ratio"]
    return Report(title, columns, rows, notes, {"rows": data, "core": core})
