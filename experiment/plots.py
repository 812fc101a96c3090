"""Plots of several trainings: compared runs, groups of seeds, and the trials of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kytolly.experiment.comparison import Group, group_curves
from kytolly.experiment.seed_statistics import (
    CONFIDENCE,
    SeedSummary,
    interquartile_mean,
    interval,
)
from kytolly.record.learning_curve import finish_axes

BAND_RESAMPLES = 2_000  # at each moment of a curve
MAX_LEGEND_INSIDE = 4  # entries of a legend within the axes
ENTRIES_PER_COLUMN = 16
MARKED_POINTS = 40  # a curve of more has no dots
LINE_STYLES = ("-", "--", ":", "-.")
MAX_SETTINGS = 40  # lines of a plot
TRIAL_COLUMNS = 5
LOG_AXIS_RATIO = 8.0  # of the largest to the smallest value, from which an axis is logarithmic
TRIAL_COLORS = {"complete": "tab:blue", "pruned": "0.6", "failed": "tab:red"}

LineStyle = dict[str, Any]  # arguments of `Axes.plot`
Setting = bool | int | float | str


class TrialSummary(TypedDict):
    """A trial of a search, as JSON has it."""

    number: int
    state: str  # complete, pruned or failed
    value: float | None  # the return, of a pruned trial its last one; None where there is none
    params: dict[str, Setting]
    run_dir: str
    failed: NotRequired[str]  # why it has no return


def plot_comparison(groups: Sequence[Group], metric: str, unit: str) -> Figure:
    """Plot a metric of runs over their length: one line each, one panel for each environment.

    A group of several seeds is drawn as the interquartile mean with a 95% bootstrap interval.

    Args:
        groups: What is compared.
        metric: Name of the metric.
        unit: `env_steps` or `updates`.
    """
    panels: dict[str, list[Group]] = {}
    for group in groups:
        panels.setdefault(group.environment, []).append(group)
    labels = list(dict.fromkeys(group.label for group in groups))
    styles = dict(zip(labels, line_styles(len(labels)), strict=True))
    most = max(map(len, panels.values()))
    columns = -(-most // ENTRIES_PER_COLUMN) if most > MAX_LEGEND_INSIDE else 0
    figure = Figure(figsize=((7 + 2 * columns) * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (environment, shown) in zip(axes, panels.items(), strict=True):
        for group in shown:
            draw_group(ax, group, metric, unit, styles[group.label], each=len(groups) == 1)
        ax.set_title(plain_text(environment), fontsize=10)
        finish_axes(ax, unit.replace("_", " "), True)
        if columns:  # beside the axes, where it covers no line
            ax.legend(
                frameon=False,
                fontsize=8,
                loc="center left",
                bbox_to_anchor=(1.0, 0.5),
                ncols=columns,
            )
    axes[0].set_ylabel(plain_text(metric_words(metric)))
    if any(len(group.runs) > 1 for group in groups):
        note = f"Lines: interquartile mean over seeds. Bands: {CONFIDENCE:.0%} bootstrap interval."
        figure.supxlabel(note, fontsize=8, color="0.4")
    return figure


def draw_group(
    ax: Axes, group: Group, metric: str, unit: str, style: LineStyle, each: bool
) -> None:
    """Draw one line, with a band where it stands for several seeds, and thinly each of them."""
    counts, values = group_curves(group, metric, unit)
    seeds = len(values)
    middle = np.array([interquartile_mean(moment) for moment in values.T])
    marks = {"marker": "o", "ms": 3} if len(counts) <= MARKED_POINTS else {}
    label = f"{group.label} ({seeds} seeds)" if seeds > 1 else group.label
    ax.plot(counts, middle, lw=1.7, label=plain_text(label), **style, **marks)
    if seeds > 1:
        low, high = interval(values, BAND_RESAMPLES)
        for of_seed in values if each else ():
            ax.plot(counts, of_seed, color="0.5", lw=0.6, alpha=0.6, zorder=1)
        ax.fill_between(counts, low, high, color=style["color"], alpha=0.18, lw=0)


def line_styles(count: int) -> list[LineStyle]:
    """Colors and styles that tell lines apart."""
    if count <= 10:
        return [{"color": f"C{number}"} for number in range(count)]
    return [
        {"color": matplotlib.colormaps["turbo"](shade), "ls": LINE_STYLES[n % len(LINE_STYLES)]}
        for n, shade in enumerate(np.linspace(0.03, 0.97, count))
    ]


def metric_words(metric: str) -> str:
    """The name of a metric on an axis."""
    known = {"evaluation_return_mean": "mean return of an evaluation"}
    return known.get(metric, metric.replace("_", " "))


def check_picture(path: str | None, flag: str) -> None:
    """Refuse a place where no picture can be saved, before time is spent on it."""
    if path is None:
        return
    known = set(Figure().canvas.get_supported_filetypes())
    ending = Path(path).suffix[1:].lower()
    known -= {"pgf"}  # for which Matplotlib runs LaTeX
    if ending not in known:
        raise ValueError(
            f"{flag} is {path!r}, expected the name of a plot that ends with "
            f"{', '.join(f'.{name}' for name in sorted(known))}."
        )
    file = Path(path).expanduser().absolute()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not file.exists()
        file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise ValueError(
            f"{flag} {path} cannot be written ({error.strerror}). Choose another path."
        ) from None


def plot_trials(trials: Sequence[TrialSummary]) -> Figure:
    """Plot the return of every trial over its number and over each setting."""
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    rows = -(-(len(names) + 1) // TRIAL_COLUMNS)
    figure = Figure(figsize=(3.0 * TRIAL_COLUMNS, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, TRIAL_COLUMNS, squeeze=False, sharey=True)
    complete = [
        (trial["number"], trial["value"])
        for trial in trials
        if trial["state"] == "complete" and trial["value"] is not None
    ]
    draw_trials(axes[0, 0], trials, lambda trial: trial["number"])
    numbers, returns = [number for number, _ in complete], [value for _, value in complete]
    best = np.maximum.accumulate(returns) if returns else []
    axes[0, 0].plot(numbers, best, color="tab:orange", drawstyle="steps-post", label="best so far")
    axes[0, 0].set_xlabel("trial")
    for ax, name in zip(axes.flat[1:], names, strict=False):
        known = [trial for trial in trials if name in trial["params"]]
        draw_trials(ax, known, lambda trial, name=name: trial["params"][name])
        values = [trial["params"][name] for trial in known]
        sizes = [value for value in values if not isinstance(value, str)]
        if sizes and min(sizes) > 0 and max(sizes) / min(sizes) >= LOG_AXIS_RATIO:
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


def draw_trials(
    ax: Axes, trials: Sequence[TrialSummary], position: Callable[[TrialSummary], Setting]
) -> None:
    """Draw a point for each trial that has a return; pruned ones are crosses."""
    for state, color in TRIAL_COLORS.items():
        points = [
            (position(trial), trial["value"])
            for trial in trials
            if trial["state"] == state and trial["value"] is not None
        ]
        if points:
            marker = "o" if state == "complete" else "x"
            positions, values = zip(*points, strict=True)
            ax.scatter(positions, values, s=18, color=color, marker=marker, label=state, lw=1)


def plot_settings(returns: Mapping[str, SeedSummary]) -> Figure:
    """Plot the returns of settings, one line each, the first one on top.

    A dot is the interquartile mean over seeds, a bar its 95% bootstrap interval, a ring one seed.

    Args:
        returns: The returns of the seeds by the settings' label; at most `MAX_SETTINGS` are drawn.
    """
    shown = list(returns.items())[:MAX_SETTINGS]
    figure = Figure(figsize=(8, 1.2 + 0.3 * len(shown)), layout="constrained")
    ax = figure.subplots()
    for place, (_, summary) in enumerate(shown):
        seeds = summary["returns"]
        ax.scatter(seeds, [place] * len(seeds), s=18, facecolors="none", edgecolors="0.6", lw=0.8)
        ax.plot(summary["interval"], [place, place], color="C0", lw=2)
        ax.plot(summary["interquartile_mean"], place, "o", color="C0", ms=6)
    ax.set_yticks(range(len(shown)), [plain_text(label) for label, _ in shown])
    ax.invert_yaxis()
    ax.set_xlabel("return of the best weights")
    ax.grid(axis="x", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    note = f"Dots: interquartile mean over seeds. Bars: {CONFIDENCE:.0%} bootstrap interval."
    left_out = len(returns) - len(shown)
    note += f" The best {len(shown)}; {left_out} more are in the table." if left_out else ""
    figure.supxlabel(note, fontsize=8, color="0.4")
    return figure


def plain_text(text: str) -> str:
    """A text that Matplotlib draws as it is.

    Between two dollars it would read a formula. A legend leaves out what begins with `_`.
    """
    return " " * text.startswith("_") + text.replace("$", r"\$")
