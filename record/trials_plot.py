"""A picture of the trials of a hyperparameter search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

COLUMNS = 5
LOG_RATIO = 8.0  # between the largest and the smallest value, from which an axis is logarithmic
COLORS = {"complete": "tab:blue", "pruned": "0.6", "failed": "tab:red"}


def plot_trials(trials: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot the return of every trial over its number and over each setting.

    Args:
        trials: Of each its `number`, `state` (complete, pruned or failed), `value` (the return, of
            a pruned trial its last one; None where there is none) and `params` by name.
    """
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    rows = -(-(len(names) + 1) // COLUMNS)
    figure = Figure(figsize=(3.0 * COLUMNS, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
    complete = [trial for trial in trials if trial["state"] == "complete"]
    draw_points(axes[0, 0], trials, lambda trial: trial["number"])
    values = [trial["value"] for trial in complete]
    numbers = [trial["number"] for trial in complete]
    best = np.maximum.accumulate(values) if values else []
    axes[0, 0].plot(numbers, best, color="tab:orange", drawstyle="steps-post", label="best so far")
    axes[0, 0].set_xlabel("trial")
    for ax, name in zip(axes.flat[1:], names, strict=False):
        known = [trial for trial in trials if name in trial["params"]]
        draw_points(ax, known, lambda trial, name=name: trial["params"][name])
        found = [trial["params"][name] for trial in known]
        if min(found) > 0 and max(found) / min(found) >= LOG_RATIO:
            ax.set_xscale("log")
        ax.set_xlabel(name)
    for ax in axes.flat[len(names) + 1 :]:
        ax.set_axis_off()
    for row in axes:
        row[0].set_ylabel("return")
    for ax in axes.flat:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def draw_points(ax: Any, trials: Sequence[Mapping[str, Any]], place: Any) -> None:
    """Draw a point for each trial that has a return; pruned ones are crosses."""
    for state, color in COLORS.items():
        shown = [t for t in trials if t["state"] == state and t["value"] is not None]
        if shown:
            points = [place(t) for t in shown], [t["value"] for t in shown]
            ax.scatter(*points, s=18, color=color, marker="x" if state != "complete" else "o",
                       label=state, lw=1)  # fmt: skip
