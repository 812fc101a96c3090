"""The tables of `kytolly benchmark`: which there are, what they share, and the command.

Whatever is measured runs in a process of its own. The sides of a comparison take turns, A B A B,
all on the same core where the platform can pin a process to one, and a figure is the median over
the turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
INSTALL = 'pip install "kytolly[benchmark]"'
ON_THE_CPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
PINNED = (
    "import os, runpy, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); "
    "sys.argv[:] = sys.argv[2:]; runpy.run_module(sys.argv[0], None, '__main__', True)"
)
KINDS = ("wall", "cpu")
TRIAL_STEPS = 400  # what a trial run does instead of what its table needs

# Where each table's function lives: (module, function), called with options and a watch.
SHORT = {
    "device": ("comparisons", "device"),
    "device-every-step": ("comparisons", "device_every_step"),
    "update": ("comparisons", "update"),
    "host": ("comparisons", "host"),
    "environments": ("environments", "environments"),
    "determinism": ("determinism", "determinism"),
    "ppo": ("comparisons", "ppo"),
    "ppo-wide": ("comparisons", "ppo_wide"),
    "ppo-host": ("comparisons", "ppo_host"),
    "ppo-environments": ("environments", "ppo_environments"),
    "ppo-determinism": ("determinism", "ppo_determinism"),
}
LONG = {
    "start": ("start", "start_table"),
    "learning": ("learning", "learning_table"),
    "lunar-lander": ("learning", "lunar_lander_table"),
    "ppo-learning": ("learning", "ppo_learning_table"),
    "ppo-lunar-lander": ("learning", "ppo_lunar_lander_table"),
    "ppo-half-cheetah": ("learning", "ppo_half_cheetah_table"),
    "reformulation": ("reformulation", "reformulation"),
    "reformulation-scale": ("query_scale", "reformulation_scale"),
    "reformulation-learning": ("query_learning", "reformulation_learning"),
}
TABLES = {**SHORT, **LONG}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says.

    Attributes:
        repeats: Turns behind each median.
        env: One environment instead of all, where a table has several.
        seeds: Seeds of each environment, where a table trains; None takes the table's own number.
        figure: Where to save the learning curves, where a table has some.
        collection: Folder of a collection in the BEIR layout, where a table searches one.
        quick: A trial run of the table itself: its figures mean nothing.
    """

    repeats: int = 3
    env: str | None = None
    seeds: int | None = None
    figure: str | None = None
    collection: str | None = None
    quick: bool = False

    def count(self, usual: int) -> str:
        """How many steps to take: `usual`, or few in a trial run."""
        return str(min(usual, TRIAL_STEPS) if self.quick else usual)

    def as_flags(self) -> str:
        """The options as they are written on the command line."""
        given = {name: getattr(self, name) for name in ("env", "seeds", "figure", "collection")}
        flags = [f"--{name} {value}" for name, value in given.items() if value is not None]
        return " ".join([f"--repeats {self.repeats}", *flags, *(["--quick"] * self.quick)])


class Report(NamedTuple):
    """One table: for a reader (title to notes), and every figure for a program (data)."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    data: Mapping[str, Any]


class Side(NamedTuple):
    """One side of a comparison: a program that prints one JSON object as its last line.

    Attributes:
        name, module, arguments: What it is called and how it is started.
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
        found = all(importlib.util.find_spec(name) for name in self.needs)
        return self.missing or ("" if found else INSTALL)


class ChildFailed(Exception):
    """A program ended with an error; the message is the last line it printed."""


class Watch:
    """The progress display on standard error, a `rich.progress.Progress`."""

    def __init__(self, progress: Any):
        self.progress = progress
        self.task = progress.add_task("", total=None)

    def begin(self, turns: int) -> None:
        """A table of so many turns begins."""
        self.progress.reset(self.task, total=turns)

    @contextlib.contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """One turn of what is measured."""
        self.progress.update(self.task, description=what)
        yield
        self.progress.advance(self.task)


def watching() -> Any:
    """A rich progress display that leaves nothing behind."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def child(
    module: str, arguments: Sequence[str], core: int | None = None, environ: Mapping[str, str] = {}
) -> dict[str, Any]:
    """Run a module in a process of its own; returns the object in its last line of output.

    With `core` it may use that one only, from before its first import. `environ` is added to this
    process's environment variables. ChildFailed where it does not end with status 0.
    """
    start = ["-m", module] if core is None else ["-c", PINNED, str(core), module]
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise ChildFailed(lines[-1])
    return json.loads(done.stdout.splitlines()[-1])


def one_core() -> int | None:
    """The core that processes are pinned to; None where the platform cannot."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(affinity(0)) if affinity else None


def interleaved(
    sides: Sequence[Side], repeats: int, watch: Watch, core: int | None
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Let the sides take turns.

    Returns what each side printed, turn by turn, and why the others did not run. RuntimeError
    where the first side, which is ours, fails.
    """
    absent = {side.name: reason for side in sides if (reason := side.why_absent())}
    results: dict[str, list[dict[str, Any]]] = {s.name: [] for s in sides if s.name not in absent}
    watch.begin(repeats * len(results))
    for turn in range(repeats):
        for side in sides:
            if side.name in absent:
                continue
            with watch.turn(f"{side.name}, {turn + 1} of {repeats}"):
                try:
                    result = child(side.module, side.arguments, core, ON_THE_CPU)
                except ChildFailed as error:
                    if side is sides[0]:
                        raise RuntimeError(f"{side.name}: {error}") from error
                    absent[side.name] = f"failed: {error}"
                    results.pop(side.name)
                else:
                    results[side.name].append(result)
    return results, absent


def medians(results: Sequence[Mapping[str, Any]], unit: str) -> dict[str, Any]:
    """Medians over the turns of one side; `unit` is env_steps or updates."""
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


def cells(figures: Mapping[str, float], unit: str) -> dict[str, str]:
    """A side's medians for the reader, by column."""
    return {
        f"{unit.replace('_', ' ')}/s": f"{figures[f'{unit}_per_second']:,.0f}",
        "slowest, fastest": "{slowest_per_second:,.0f}, {fastest_per_second:,.0f}".format(
            **figures
        ),
        "wall µs": f"{figures['wall_microseconds']:,.1f}",
        "CPU µs": f"{figures['cpu_microseconds']:,.1f}",
        "compile s": f"{figures['compile_seconds']:.1f}",
    }


def compared(
    title: str,
    unit: str,
    sides: Sequence[Side],
    options: Options,
    watch: Watch,
    pinned: bool = True,
) -> Report:
    """A table of the first side, which is ours, against the others."""
    core = one_core() if pinned else None
    results, absent = interleaved(sides, options.repeats, watch, core)
    own, rows, data = medians(results[sides[0].name], unit), [], []
    for side in sides:
        if side.name in absent:
            rows.append([f"{side.name}: {absent[side.name]}"])
            data.append({"name": side.name, "missing": absent[side.name]})
            continue
        figures = medians(results[side.name], unit)
        wall, cpu = (
            figures[f"{kind}_microseconds"] / own[f"{kind}_microseconds"] for kind in KINDS
        )
        ratios = {"kytolly_wall_ratio": wall, "kytolly_cpu_ratio": cpu}
        data.append({"name": side.name, **figures, **ratios, "runs": results[side.name]})
        last = ["", ""] if side is sides[0] else [f"{wall:.2f}x", f"{cpu:.2f}x"]
        rows.append([side.name, *cells(figures, unit).values(), *last])
    where = f"each process pinned to core {core}" if core is not None else "all cores free"
    if pinned and core is None:
        where = "not pinned to a core, which this platform cannot"
    word = unit.replace("_", " ").removesuffix("s")
    notes = [
        f"Median of {options.repeats} turns, the sides in turn, {where}, on the CPU. Microseconds "
        f"are for one {word}; Kytolly is faster by the last two columns."
    ]
    columns = ["", *cells(own, unit), "by wall", "by CPU"]
    return Report(title, columns, rows, notes, {"rows": data, "core": core})


# --- the command ---------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What the figures depend on besides the programs."""
    from kytolly.machine import facts as doctor

    return {
        "cpu": doctor.cpu_description()[0],
        "cores": doctor.usable_cores(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def print_report(report: Report, command: str, file: Any) -> None:
    """The table, what it means, and the command that printed it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=report.title, title_justify="left")
    for number, column in enumerate(report.columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    for row in report.rows:
        table.add_row(*row)
    console = Console(file=file, highlight=False, width=None if file.isatty() else 120)
    console.print(table)
    for note in report.notes:
        console.print(note, markup=False)
    console.print(command, style="bold", markup=False)


def run(
    name: str | None,
    *,
    repeats: int = 3,
    as_json: bool = False,
    env: str | None = None,
    seeds: int | None = None,
    figure: str | None = None,
    collection: str | None = None,
    quick: bool = False,
) -> int:
    """Measure and print one table, or without a name all that take minutes rather than hours.

    Returns the exit status. With `as_json` tables go to standard error, and standard output ends
    with one line of JSON. The other arguments are those of `Options`.

    Raises:
        ValueError: There is no table of that name.
    """
    if name == "optimisations":
        from kytolly.benchmarks import optimisations

        return optimisations.main(["--json"] * as_json + ["--quick"] * quick)
    if name is not None and name not in TABLES:
        known = [*TABLES, "optimisations"]
        hint = "".join(f" Did you mean {x}?" for x in difflib.get_close_matches(name, known, 1))
        raise ValueError(
            f"{name!r} is no table of `kytolly benchmark`; there are {', '.join(known)}.{hint}"
        )
    options = Options(
        repeats=repeats, env=env, seeds=seeds, figure=figure, collection=collection, quick=quick
    )
    output, about, found = sys.stderr if as_json else sys.stdout, machine(), {}
    for key in [name] if name else SHORT:
        module, function = TABLES[key]
        make = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        with watching() as progress:
            report: Report = make(options, Watch(progress))
        command = f"kytolly benchmark {key} {options.as_flags()}"
        print_report(report, command, output)
        found[key] = {"title": report.title, "command": command, **report.data}
    if not name:
        print(f"By name only: {', '.join([*LONG, 'optimisations'])}.", file=output)
    if quick:
        print("A trial run: these figures mean nothing.", file=output)
    if as_json:
        print(json.dumps({"machine": about, "tables": found}))
    return 0
