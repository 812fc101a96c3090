"""Plots of a policy and its values over the state space, and the curve of supervised training.

They draw on `matplotlib.figure.Figure` alone, never on pyplot's global state. So they need no
display and do not touch the figures of a notebook or of another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from kytolly.record.learning_curve import (
    EVALUATION_COLOR,
    TRAINING_COLOR,
    curve,
    finish_axes,
    make_axes,
    read_curve,
)
from kytolly.record.learning_curve import plot_learning_curve as plot_learning_curve

Axis = tuple[str, float, float]  # label, lowest, highest


def plot_q_values(
    q_function: Callable[[np.ndarray], np.ndarray],
    axes: Sequence[tuple[int, str, float, float]],
    observation: Sequence[float],
    action_names: Sequence[str] | None = None,
    resolution: int = 101,
) -> Figure:
    """Plot the best action value and the choice of an action over two dimensions.

    The left plot shows the highest action value. With two actions, the right plot shows how much
    better the second one is, with a black line where they are equal. With more actions it shows
    the greedy one.

    Args:
        q_function: From observations [B, obs] to action values [B, A]: `agent.q_values`.
        axes: Two tuples (index, label, lowest, highest): the dimensions across and upwards.
        observation: [obs] values of the other dimensions.
        action_names: A name for each of the `A` actions.
        resolution: Points along each dimension.

    Raises:
        ValueError: The axes, the names or the action values do not fit each other.
    """
    check_dimensions([axis[0] for axis in axes], observation)
    x, y = axes
    grid_x, grid_y = grid(x[1:], y[1:], resolution)
    points = np.tile(np.asarray(observation, np.float32), (grid_x.size, 1))
    points[:, x[0]], points[:, y[0]] = grid_x.ravel(), grid_y.ravel()
    q = np.asarray(q_function(points))
    if q.ndim != 2 or len(q) != len(points):
        raise ValueError(
            f"q_function returned shape {q.shape} for {len(points)} observations, expected "
            f"({len(points)}, number of actions). Give agent.q_values."
        )
    names = list(action_names or (f"action {index}" for index in range(q.shape[1])))
    if len(names) != q.shape[1]:
        raise ValueError(
            f"action_names holds {len(names)} names for {q.shape[1]} actions. Name each of them."
        )
    q = q.reshape(*grid_x.shape, -1)
    figure = Figure(figsize=(10, 4), layout="constrained")
    value_ax, action_ax = figure.subplots(1, 2, sharex=True, sharey=True)
    best = "discounted return still to come"
    draw_numbers(value_ax, grid_x, grid_y, q.max(-1), best, signed=False)
    value_ax.set_title("Value of the best action")
    if len(names) == 2:
        better = f"← {names[0]} is better        {names[1]} is better →"
        draw_numbers(action_ax, grid_x, grid_y, q[..., 1] - q[..., 0], better, signed=True)
        action_ax.set_title(f"Value of {names[1]} minus value of {names[0]}")
    else:
        draw_greedy(action_ax, grid_x, grid_y, q, names)
    label_axes([value_ax, action_ax], x[1:], y[1:])
    return figure


def plot_over_states(
    plots: Sequence[tuple[str, str, Callable[[np.ndarray], np.ndarray]]],
    axes: Sequence[Axis],
    observe: Callable[[np.ndarray, np.ndarray], np.ndarray],
    path: np.ndarray | None = None,
    resolution: int = 101,
) -> Figure:
    """Plot functions of the state, such as a policy and its values, over two quantities.

    Numbers of both signs are shown in two colors, with a black line where they are 0, if each sign
    reaches at least a tenth as far as the other. All others go from dark to bright.

    Args:
        plots: Tuples (title, meaning of the colors, function from observations to [B] numbers).
        axes: Two tuples (label, lowest, highest): the quantities across and upwards.
        observe: From [B] values of both quantities to the observations [B, *obs].
        path: [T, 2] both quantities over an episode, drawn as a line that begins with a dot. The
            line is interrupted where it jumps by half an axis, such as an angle after a turn.
        resolution: Points along each axis.
    """
    x, y = axes
    grid_x, grid_y = grid(x, y, resolution)
    observations = observe(grid_x.ravel().astype(np.float32), grid_y.ravel().astype(np.float32))
    figure = Figure(figsize=(5 * len(plots), 4))
    figure.set_layout_engine("constrained", wspace=0.06)
    all_axes = figure.subplots(1, len(plots), sharex=True, sharey=True, squeeze=False)[0]
    for ax, (title, meaning, function) in zip(all_axes, plots, strict=True):
        values = np.asarray(function(observations))
        if values.shape != (grid_x.size,):
            raise ValueError(
                f"the function of the plot {title!r} returned shape {values.shape} for "
                f"{grid_x.size} observations, expected ({grid_x.size},): one number for each."
            )
        draw_numbers(ax, grid_x, grid_y, values.reshape(grid_x.shape), meaning)
        if path is not None:
            draw_path(ax, path, (x[2] - x[1], y[2] - y[1]))
        ax.set_title(title)
    label_axes(all_axes, x, y)
    return figure


def plot_supervised_curve(run_dir_or_csv: str | Path, metric: str, ax: Axes | None = None) -> Axes:
    """Plot the loss of supervised training, and on a second axis a metric of the evaluations.

    Args:
        run_dir_or_csv: The run's folder, or its metrics file.
        metric: Name of the metric, without `evaluation_`.
        ax: Where to draw; axes of a new figure by default.

    Returns:
        The axes of the loss; `.figure` is the figure.

    Raises:
        ValueError: There is no such file.
    """
    rows = read_curve(run_dir_or_csv, "updates")
    ax = ax or make_axes()
    updates, loss = curve(rows, "loss", count="updates")
    (line,) = ax.plot(updates, loss, color=TRAINING_COLOR, lw=1.2, label="training loss")
    right: Any = ax.twinx()
    updates, values = curve(rows, f"evaluation_{metric}", count="updates")
    style: Any = {"color": EVALUATION_COLOR, "lw": 2, "marker": "o", "ms": 4}
    (dots,) = right.plot(updates, values, label=f"evaluation: {metric}", **style)
    right.spines["top"].set_visible(False)
    right.set_ylabel(metric)
    ax.set_ylabel("loss")
    return finish_axes(ax, "updates", bool(rows), [line, dots])


def grid(x: Axis, y: Axis, resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """[R, R] values of two quantities across and upwards; ValueError where one goes downwards."""
    for label, lowest, highest in (x, y):
        if not lowest < highest:
            raise ValueError(
                f"axes let {label} go from {lowest} to {highest}, expected a lowest below the "
                "highest. Swap them."
            )
    across, upwards = (np.linspace(*axis[1:], resolution) for axis in (x, y))
    grid_x, grid_y = np.meshgrid(across, upwards)
    return grid_x, grid_y


def label_axes(all_axes: Sequence[Axes], x: Axis, y: Axis) -> None:
    """Say in every plot what varies, and between which limits."""
    for ax in all_axes:
        ax.set(xlabel=x[0], xlim=x[1:], ylim=y[1:])
    all_axes[0].set_ylabel(y[0])


def draw_numbers(
    ax: Axes,
    grid_x: np.ndarray,
    grid_y: np.ndarray,
    values: np.ndarray,
    meaning: str,
    signed: bool | None = None,
) -> None:
    """Draw numbers as colors; where `signed`, or else where both signs matter, 0 has a line."""
    lowest, highest = values.min(), values.max()
    limit = max(-lowest, highest) or 1.0
    if signed is None:
        signed = min(-lowest, highest) >= 0.1 * limit
    mesh = ax.pcolormesh(
        grid_x,
        grid_y,
        values,
        shading="nearest",
        cmap="RdBu_r" if signed else "viridis",
        vmin=-limit if signed else None,
        vmax=limit if signed else None,
    )
    ax.figure.colorbar(mesh, ax=ax, label=meaning)
    if signed and lowest < 0 < highest:
        ax.contour(grid_x, grid_y, values, levels=[0.0], colors="black", linewidths=1.0)


def draw_path(ax: Axes, path: np.ndarray, spans: tuple[float, float]) -> None:
    """Draw a line through [T, 2] points that begins with a dot, interrupted at jumps."""
    path = np.asarray(path, float)
    jumps = (np.abs(np.diff(path, axis=0)) > 0.5 * np.array(spans)).any(axis=1)
    line = np.insert(path, np.flatnonzero(jumps) + 1, np.nan, axis=0)
    outline = [Stroke(linewidth=3.2, foreground="white"), Normal()]
    ax.plot(*line.T, color="black", lw=1.6, path_effects=outline)
    ax.plot(*path[0], "o", color="black", ms=7, mec="white", mew=1.5, clip_on=False, zorder=5)


def draw_greedy(
    ax: Axes, grid_x: np.ndarray, grid_y: np.ndarray, q: np.ndarray, names: Sequence[str]
) -> None:
    """Draw which action is best."""
    count = len(names)
    palette = matplotlib.colormaps["Set2" if count <= 8 else "turbo"]
    shades = range(count) if count <= 8 else np.linspace(0.05, 0.95, count)
    edges = np.arange(count + 1) - 0.5
    mesh = ax.pcolormesh(
        grid_x,
        grid_y,
        q.argmax(-1),
        shading="nearest",
        cmap=ListedColormap(np.array([palette(shade) for shade in shades])),
        norm=BoundaryNorm(edges, count),
    )
    colors = ax.figure.colorbar(mesh, ax=ax, ticks=range(count), spacing="proportional")
    colors.ax.set_yticklabels(names)
    colors.ax.tick_params(length=0, which="both")
    ax.set_title("Greedy action")


def check_dimensions(indices: Sequence[int], observation: Sequence[float]) -> None:
    """Check the two dimensions to vary; ValueError where the observation does not have them."""
    shape = np.shape(observation)
    if len(shape) != 1:
        raise ValueError(
            f"observation has shape {shape}, expected one vector: action values are plotted over "
            "two of its numbers. Give such an observation."
        )
    if len(indices) != 2 or len(set(indices)) != 2 or not set(indices) <= set(range(shape[0])):
        raise ValueError(
            f"axes name the dimensions {indices}, expected two different ones of 0 to "
            f"{shape[0] - 1}. Change them."
        )
