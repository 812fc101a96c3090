"""`kytolly plot`: the curves of several runs in one picture, and how they compare in numbers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.result import print_table

if TYPE_CHECKING:
    from kytolly.experiment.comparison import GroupComparison, GroupSummary, ValueSummary

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
    from kytolly.experiment.comparison import (
        group_comparisons,
        group_summary,
        make_groups,
        read_runs,
        run_folders,
    )
    from kytolly.experiment.plots import check_picture, plot_comparison
    from kytolly.record.files import write_output

    if args.out == DEFAULT_OUT and Path(DEFAULT_OUT).is_symlink():  # perhaps a stranger's
        raise BadInput(
            f"{DEFAULT_OUT} is a link, expected a picture or nothing: give --out "
            f"another name, or ./{DEFAULT_OUT} to write what it leads to."
        )
    check_picture(args.out, "--out")
    runs, unit = read_runs(run_folders(args.run_dirs), args.metric)
    groups = make_groups(runs, args.group)
    file = Path(args.out).expanduser()
    figure = plot_comparison(groups, args.metric, unit)
    write_output(file, lambda to: figure.savefig(to, dpi=150))
    summaries = [group_summary(group, args.metric, unit) for group in groups]
    compared = group_comparisons(summaries, args.metric)
    shown = sys.stderr if args.json else sys.stdout
    print_groups(summaries, args.metric, shown)
    if compared:
        print_comparisons(compared, shown)
    if args.json:
        summary = {
            "metric": args.metric,
            "unit": unit,
            "groups": summaries,
            "comparisons": compared,
        }
        print(json.dumps({**summary, "plot": args.out}))
    else:
        print(f"Plot: {args.out}")
    return 0


def print_groups(summaries: Sequence[GroupSummary], metric: str, file: TextIO) -> None:
    """Print one line for each group: the last and the best value of the metric."""
    rows = [
        [
            group["label"],
            group["environment"],
            str(len(group["runs"])),
            value_and_interval(group["last"]),
            value_and_interval(group["best"]),
        ]
        for group in summaries
    ]
    note = "Interquartile mean over runs, with its 95% bootstrap interval."
    several = any(len(group["runs"]) > 1 for group in summaries)
    columns = ["", "environment", "runs", f"last {metric}", f"best {metric}"]
    print_table(columns, rows, [note] if several else [], file)


def print_comparisons(compared: Sequence[GroupComparison], file: TextIO) -> None:
    """Print how each group compares with the first one, by its last and by its best value."""
    rows = []
    for pair in compared:
        for name, values in (("last", pair["last"]), ("best", pair["best"])):
            chance = "{:.2f} ({:.2f}, {:.2f})".format(
                values["probability_of_improvement"], *values["probability_interval"]
            )
            difference = ""
            if "difference" in values and "difference_interval" in values:
                difference = with_interval(values["difference"], values["difference_interval"])
            title = f"{pair['label']} against {pair['baseline']}" if name == "last" else ""
            where = pair["environment"] or "all"
            rows.append([title, where, name, difference, chance])
    note = (
        "Difference of the interquartile means, and probability that a run of the first is better "
        "than one of the second, with 95% bootstrap intervals."
    )
    columns = ["", "environment", "value", "difference", "probability of improvement"]
    print_table(columns, rows, [note], file)


def value_and_interval(summary: ValueSummary) -> str:
    """One value, or the interquartile mean of several with its interval."""
    if len(summary["values"]) > 1:
        return with_interval(summary["interquartile_mean"], summary["interval"])
    return number_text(summary["values"][0])


def with_interval(value: float, interval: Sequence[float]) -> str:
    """A number with the ends of its interval, all with the digits that the largest one needs."""
    low, high = interval
    digits = number_format(max(map(abs, (value, low, high))))
    return f"{value:{digits}} ({low:{digits}}, {high:{digits}})"


def number_text(value: float) -> str:
    """A number of a table."""
    return f"{value:{number_format(value)}}"


def number_format(value: float) -> str:
    """Format of a number in a table: one digit after the point, more where it is small."""
    return ",.1f" if 10 <= abs(value) < 1e9 else ".4g"
