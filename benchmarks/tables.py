"""Which tables `kytolly benchmark` has, and the command that prints them."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from typing import Any

from kytolly.benchmarks.suite import Options, Report, Watch, progress_display
from kytolly.config.words import nearest

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
    "acting": ("acting", "acting_table"),
}
LONG = {
    "start": ("start", "start_table"),
    "learning": ("learning", "learning_table"),
    "lunar-lander": ("learning", "lunar_lander_table"),
    "ppo-learning": ("learning", "ppo_learning_table"),
    "ppo-lunar-lander": ("learning", "ppo_lunar_lander_table"),
    "ppo-half-cheetah": ("learning", "ppo_half_cheetah_table"),
    "text": ("text", "text"),
    "reformulation": ("reformulation", "reformulation"),
    "reformulation-scale": ("query_scale", "reformulation_scale"),
    "reformulation-learning": ("query_learning", "reformulation_learning"),
    "search": ("search_chain", "search_table"),
}
TABLES = {**SHORT, **LONG}
OPTIMIZATIONS = "optimizations"  # measured in this process, and printed by its own program
SYNONYMS = {"optimisations": OPTIMIZATIONS}


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
    name = SYNONYMS.get(name or "", name)
    if name == OPTIMIZATIONS:
        from kytolly.benchmarks import optimizations

        return optimizations.main(["--json"] * as_json + ["--quick"] * quick)
    if name is not None and name not in TABLES:
        known = [*TABLES, OPTIMIZATIONS]
        raise ValueError(
            f"{name!r} is no table of `kytolly benchmark`; there are {', '.join(known)}."
            + nearest(name, known)
        )
    options = Options(
        repeats=repeats, env=env, seeds=seeds, figure=figure, collection=collection, quick=quick
    )
    output, facts, found = sys.stderr if as_json else sys.stdout, machine_facts(), {}
    for key in [name] if name else SHORT:
        module, function = TABLES[key]
        make = getattr(importlib.import_module(f"kytolly.benchmarks.{module}"), function)
        with progress_display() as progress:
            report: Report = make(options, Watch(progress))
        command = f"kytolly benchmark {key} {options.as_flags()}"
        print_report(report, command, output)
        found[key] = {"title": report.title, "command": command, **report.data}
    if not name:
        print(f"By name only: {', '.join([*LONG, OPTIMIZATIONS])}.", file=output)
    if quick:
        print("A trial run: these numbers mean nothing.", file=output)
    if as_json:
        print(json.dumps({"machine": facts, "tables": found}))
    return 0


def machine_facts() -> dict[str, Any]:
    """What the numbers depend on besides the programs."""
    from kytolly.machine import facts

    return {
        "cpu": facts.cpu_description()[0],
        "cores": facts.usable_cores(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def print_report(report: Report, command: str, file: Any) -> None:
    """Print the table, what it means, and the command that made it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=report.title, title_justify="left")
    for number, column in enumerate(report.columns):
        table.add_column(
            column, justify="right" if number else "left", no_wrap=number > 0, overflow="fold"
        )
    for row in report.rows:
        table.add_row(*map(Text, row))  # no markup: a cell may say kytolly[benchmark]
    console = Console(file=file, highlight=False, width=None if file.isatty() else 120)
    console.print(table)
    for note in report.notes:
        console.print(note, markup=False)
    console.print(command, style="bold", markup=False)
