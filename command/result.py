"""The result of a command, for a reader or as JSON, and the profile that may be a part of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from kytolly.callback.base import TrainState

Summary = Mapping[str, Any]  # a run's result, as `record.run_folder` writes it


def print_line(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def print_result(summary: Summary, as_json: bool) -> None:
    """Print the result as one line of JSON, or as a few lines for a reader."""
    if as_json:
        print(json.dumps(summary))
        return
    from kytolly.callback.base import places

    evaluation = summary["evaluation"]
    mean, deviation = evaluation["return_mean"], evaluation["return_std"]
    iqm = summary.get("return_iqm")
    digits = places(mean, deviation)
    cut = ", cut by max_wall_seconds" if summary.get("evaluation_cut") else ""
    print(
        f"Return of the best weights: {mean:.{digits}f} ± {deviation:.{digits}f}"
        f"{'' if iqm is None else f', interquartile mean {iqm:.{digits}f},'} over "
        f"{evaluation['episodes']} greedy episodes{cut}"
    )
    if "env_steps" in summary:
        print(
            f"{summary['algorithm']} on {summary['environment']} ({summary['loop']} loop, seed "
            f"{summary['seed']}): {summary['env_steps']:,} env steps, {summary['updates']:,} "
            f"updates in {summary['wall_seconds']:.1f} s, {summary['env_steps_per_second']:,.0f} "
            f"env steps/s, stopped by {summary['stopped_by']}"
        )
        if not summary["updates"]:
            print("Nothing was learned: no update was made. Give the run more time or env steps.")
    print(f"Run: {summary['run_dir']}")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    file: TextIO,
    text_column: int = 0,
    title: str | None = None,
) -> None:
    """Print a table for a reader, numbers but for one column, and notes below it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for number, column in enumerate(columns):
        is_text = number == text_column
        justify = "left" if is_text else "right"
        table.add_column(column, justify=justify, no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # no markup: a folder may be called [red]
    console = Console(file=file, highlight=False, width=None if file.isatty() else 120)
    console.print(table)
    for note in notes:
        console.print(note, markup=False)


def write_profile(
    state: TrainState, summary: Summary, idle: float | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The summary with a profile, which goes into the run's `result.json`, and it as lines.

    The arguments are those of `profile_run`.
    """
    from kytolly.loop.profile import profile_run
    from kytolly.record.run_folder import RunFolder
    from kytolly.record.saved_run import SavedRun

    result = {**summary, "profile": profile_run(state, summary, idle)}
    RunFolder(SavedRun.existing(summary["run_dir"]).path).write_result(result)
    return result, profile_lines(result["profile"])


def profile_lines(profile: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The profile as a table."""
    head = "Time of the steady run by part, timed apart after training:"
    rows = profile["seconds"].items()
    share = profile["share"]
    return [head, *(f"  {name:<24} {sec:>9.2f} s {share[name]:>7.1%}" for name, sec in rows)]
