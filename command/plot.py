"""`kytolly plot`: the curves of several runs in one picture, and how they compare in numbers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.command.options import path
from kytolly.command.result import print_table

DEFAULT_OUT = "comparison.png"


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly plot`."""
    add = parser.add_argument
    add(
        "run_dirs",
        nargs="+",
        type=path,
        metavar="RUN",
        help="folders of runs; the folder that `kytolly train --seeds` made stands for its runs",
    )
    add("--group", action="store_true", help="one line for runs that differ in their seed alone")
    add(
        "--metric",
        metavar="NAME",
        default="evaluation_return_mean",
        help="column of metrics.csv; default evaluation_return_mean",
    )
    add(
        "--out", metavar="FILE", type=path, default=DEFAULT_OUT, help=f"plot; default {DEFAULT_OUT}"
    )


def run(args: argparse.Namespace) -> int:
    """Draw the picture and print the table."""
    from kytolly.record.comparison import group_summary, make_groups, read_runs, run_folders
    from kytolly.record.comparison_plot import check_picture, plot_comparison

    check_picture(args.out, "--out")
    runs, unit = read_runs(run_folders(args.run_dirs), args.metric)
    groups = make_groups(runs, args.group)
    file = Path(args.out).expanduser()
    plot_comparison(groups, args.metric, unit).savefig(file, dpi=150)
    found = [group_summary(group, args.metric, unit) for group in groups]
    print_comparison(found, args.metric, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps({"metric": args.metric, "unit": unit, "groups": found, "plot": args.out}))
    else:
        print(f"Plot: {args.out}")
    return 0


def print_comparison(found: Sequence[dict[str, Any]], metric: str, file: Any) -> None:
    """Print one line for each group: the last and the best value of the metric."""
    rows = [
        [
            group["label"],
            group["environment"],
            str(len(group["runs"])),
            value_and_interval(group["last"]),
            value_and_interval(group["best"]),
        ]
        for group in found
    ]
    note = "Interquartile mean over runs, with its 95% bootstrap interval."
    several = any(len(group["runs"]) > 1 for group in found)
    columns = ["", "environment", "runs", f"last {metric}", f"best {metric}"]
    print_table(columns, rows, [note] if several else [], file)


def value_and_interval(summary: dict[str, Any]) -> str:
    """One value, or the interquartile mean of several with its interval."""
    from kytolly.record.seed_statistics import interval_text

    if len(summary["values"]) > 1:
        return interval_text(summary)
    return number_text(summary["values"][0])


def number_text(value: float) -> str:
    """A number of a table: one digit after the point, more where it is small."""
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.4g}"
