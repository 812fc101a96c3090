"""Several runs side by side: which belong together, what they are called, and how they compare."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from kytolly.experiment.members import GROUP_FILE, SWEEP_FILE
from kytolly.experiment.seed_statistics import (
    Improvement,
    difference_interval,
    improvement,
    iqm_difference,
    summary,
)
from kytolly.record.learning_curve import curve, read_curve
from kytolly.record.metrics_file import COUNTS, number_in
from kytolly.record.saved_run import SavedRun

DEFAULT_METRIC = "evaluation_return_mean"
MAX_NAMED_SETTINGS = 3  # settings in a label


class ComparedRun(NamedTuple):
    """One run.

    Attributes:
        path: Its folder.
        environment, settings: As its config.yaml has them.
        rows: Of its metrics file.
    """

    path: Path
    environment: str
    settings: dict[str, Any]
    rows: list[dict[str, str]]

    def metrics(self) -> list[str]:
        """Names of the metrics that have a value."""
        names = [name for name in (self.rows or [{}])[0] if name not in COUNTS["env_steps"]]
        return [name for name in names if any(np.isfinite(number_in(r, name)) for r in self.rows)]


class Group(NamedTuple):
    """Runs that differ in their seed alone, or a single run.

    Attributes:
        label: What tells it from the others.
        environment: Where all of its runs were trained.
        runs: At least one.
    """

    label: str
    environment: str
    runs: list[ComparedRun]


class ValueSummary(TypedDict):
    """Statistics over runs of one value of each, as JSON has them."""

    interquartile_mean: float
    interval: list[float]
    mean: float
    values: list[float]


class GroupSummary(TypedDict):
    """A group's last and best values of a metric, as JSON has them."""

    label: str
    environment: str
    runs: list[str]
    last: ValueSummary
    best: ValueSummary


class Difference(Improvement):
    """One group against another by one value; over several tasks a difference has no mean."""

    difference: NotRequired[float]
    difference_interval: NotRequired[list[float]]


class GroupComparison(TypedDict):
    """A group against the first one of the same environment; of all environments where None."""

    label: str
    baseline: str
    environment: str | None
    last: Difference
    best: Difference


def run_folders(paths: Sequence[str | Path]) -> list[Path]:
    """The runs that are meant: a folder of a group, or of a sweep, stands for the runs in it.

    Raises:
        ValueError: A folder is no run, holds none, or is given twice.
    """
    folders: list[Path] = []
    for path in itertools.chain.from_iterable(map(groups_in, map(Path, paths))):
        if not (path / GROUP_FILE).is_file():
            folders.append(SavedRun.existing(path).path)
            continue
        seeds = [file.parent for file in path.glob("*-*/metrics.csv")]
        seeds = [run for run in seeds if re.fullmatch("(seed|member)-[0-9]+", run.name)]
        if not seeds:
            raise ValueError(
                f"{path} holds no run with a metrics.csv, expected at least one. Train its seeds."
            )
        folders += sorted(seeds, key=lambda run: int(run.name.rpartition("-")[2]))
    resolved: set[Path] = set()
    for path in folders:
        if path.resolve() in resolved:
            raise ValueError(f"{path} is given twice, expected different runs. Give it once.")
        resolved.add(path.resolve())
    return folders


def groups_in(path: Path) -> list[Path]:
    """The folders of a sweep's groups; of another folder itself."""
    is_sweep = (path / SWEEP_FILE).is_file()
    return sorted(file.parent for file in path.glob(f"*/{GROUP_FILE}")) if is_sweep else [path]


def read_runs(paths: Sequence[Path], metric: str = DEFAULT_METRIC) -> tuple[list[ComparedRun], str]:
    """The runs with their metrics, and the unit that all of them count in.

    Raises:
        ValueError: A run has no metrics, or not this one; the message names those in common.
    """
    runs = []
    for path in paths:
        saved = SavedRun.existing(path).read_config()
        rows = read_curve(path, "updates")  # which both kinds of runs count
        runs.append(ComparedRun(path, saved.environment, saved.settings, rows))
    lacking = [run.path for run in runs if metric not in run.metrics()]
    if lacking:
        shared = [n for n in runs[0].metrics() if all(n in run.metrics() for run in runs)]
        advice = f"Give one that all have by --metric: {', '.join(shared)}."
        if not shared:
            advice = "The runs have no metric in common: leave out those that differ."
        raise ValueError(
            f"{lacking[0]} has no value of {metric}, expected one in every run. {advice}"
        )
    counts_env_steps = all("env_steps" in run.rows[0] for run in runs)
    return runs, "env_steps" if counts_env_steps else "updates"


def lower_is_better(metric: str) -> bool:
    """True where the lowest value of a metric is its best one."""
    return metric.endswith("loss")


def common_grid(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Env steps [T] and returns [N, T] of N runs, each as far as the shortest went.

    Runs of one task evaluate at the same env steps; where one does not, its returns are
    interpolated.
    """
    arrays = [np.asarray(curve, float) for curve in curves]
    end = min(array[-1, 0] for array in arrays)
    grid = arrays[0][:, 0]
    grid = grid[grid <= end]
    return grid, np.stack([np.interp(grid, array[:, 0], array[:, 1]) for array in arrays])


def make_groups(runs: Sequence[ComparedRun], group_seeds: bool) -> list[Group]:
    """The runs in groups of seeds, or each for itself, with labels that tell them apart."""
    members: dict[Any, list[ComparedRun]] = {}
    for run in runs:
        others = {name: value for name, value in run.settings.items() if name != "seed"}
        alike = json.dumps([run.environment, others], sort_keys=True, default=str)
        members.setdefault(alike if group_seeds else run.path, []).append(run)
    groups = list(members.values())
    return [
        Group(label, group[0].environment, group)
        for label, group in zip(labels(groups), groups, strict=True)
    ]


def labels(groups: Sequence[Sequence[ComparedRun]]) -> list[str]:
    """A label for each group: the settings that differ, where they are few, else its folder."""
    settings = [group[0].settings for group in groups]
    if len(groups) == 1 and len(groups[0]) > 1:
        return [str(settings[0]["algorithm"])]
    shared = [name for name in settings[0] if all(name in other for other in settings)]
    differing = [n for n in shared if any(other[n] != settings[0][n] for other in settings)]
    named = [name for name in differing if name not in ("algorithm", "seed")]
    named += ["seed"] * ("seed" in differing and all(len(group) == 1 for group in groups))
    algorithms = [[str(values["algorithm"])] * ("algorithm" in differing) for values in settings]
    words = [
        [*algorithm, *(f"{name} {values[name]}" for name in named)]
        for algorithm, values in zip(algorithms, settings, strict=True)
    ]
    firsts = [group[0] for group in groups]
    parents = [g[0].path.parent.name if len(g) > 1 else g[0].path.name for g in groups]
    ways = [
        list(map(", ".join, words)) if len(named) <= MAX_NAMED_SETTINGS else [],
        list(map(", ".join, algorithms)),
        parents,
        [run.path.name for run in firsts],
    ]
    for way in ways:
        pairs = {(run.environment, label) for run, label in zip(firsts, way, strict=False)}
        if all(way) and len(pairs) == len(groups):
            return way
    return [str(run.path) for run in firsts]


def group_curves(group: Group, metric: str, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts [T] and values [N, T] of a group's N runs, as far as the shortest went."""
    columns = [curve(run.rows, metric, count=unit) for run in group.runs]
    return common_grid([list(zip(*pair, strict=True)) for pair in columns])


def group_summary(group: Group, metric: str, unit: str) -> GroupSummary:
    """Statistics over a group's runs of the last and of the best value of a metric."""
    best_of = np.min if lower_is_better(metric) else np.max
    values = [curve(run.rows, metric, count=unit)[1] for run in group.runs]
    return {
        "label": group.label,
        "environment": group.environment,
        "runs": [str(run.path) for run in group.runs],
        "last": value_summary([float(of_run[-1]) for of_run in values]),
        "best": value_summary([float(best_of(of_run)) for of_run in values]),
    }


def value_summary(values: list[float]) -> ValueSummary:
    """Statistics over runs of one value of each."""
    whole = summary(values)
    return {
        "interquartile_mean": whole["interquartile_mean"],
        "interval": whole["interval"],
        "mean": whole["mean"],
        "values": values,
    }


def group_comparisons(groups: Sequence[GroupSummary], metric: str) -> list[GroupComparison]:
    """Groups of several seeds against the first one of the same environment.

    Where two have more than one environment in common, a last entry without an environment has the
    probability of improvement over all of them; a difference in other units has no mean.

    Args:
        groups: As `group_summary` gives them.
        metric: Name of the metric.
    """
    several = [group for group in groups if len(group["runs"]) > 1]
    firsts: dict[str, GroupSummary] = {}
    tasks: dict[tuple[str, str], list[tuple[GroupSummary, GroupSummary]]] = {}
    for group in several:
        first = firsts.setdefault(group["environment"], group)
        if first is not group:
            tasks.setdefault((group["label"], first["label"]), []).append((group, first))
    rows: list[GroupComparison] = []
    for (label, baseline), pairs in tasks.items():
        cases = [(pair[0]["environment"], [pair]) for pair in pairs]
        for environment, compared in cases + [(None, pairs)] * (len(pairs) > 1):
            last = [(group["last"], first["last"]) for group, first in compared]
            best = [(group["best"], first["best"]) for group, first in compared]
            rows.append(
                {
                    "label": label,
                    "baseline": baseline,
                    "environment": environment,
                    "last": difference(last, metric),
                    "best": difference(best, metric),
                }
            )
    return rows


def difference(pairs: Sequence[tuple[ValueSummary, ValueSummary]], metric: str) -> Difference:
    """Probability of improvement over tasks; of one task also the difference."""
    values = [(x["values"], y["values"]) for x, y in pairs]
    result: Difference = {**improvement(values, lower_is_better(metric))}
    if len(values) == 1:
        result["difference"] = float(iqm_difference(*values[0]))
        result["difference_interval"] = list(difference_interval(values, iqm_difference))
    return result
