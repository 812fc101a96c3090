"""The learning curve of a run.

It draws on `matplotlib.figure.Figure` alone, never on pyplot's global state. So it needs no display
and does not touch the figures of a notebook or of another thread.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from kytolly.record.files import write_file
from kytolly.record.metrics_file import NAME, number_in, read_rows

if TYPE_CHECKING:
    from matplotlib.artist import Artist

TRAINING_COLOR, EVALUATION_COLOR = "0.6", "tab:blue"


def plot_learning_curve(run_dir_or_csv: str | Path, ax: Axes | None = None) -> Axes:
    """Plot returns over env steps: those of training episodes and of greedy evaluations.

    The band around the evaluations is one standard deviation over their episodes.

    Args:
        run_dir_or_csv: The run's folder, or its metrics file.
        ax: Where to draw; axes of a new figure by default.

    Returns:
        The axes; `.figure` is the figure.

    Raises:
        ValueError: There is no such file.
    """
    rows = read_curve(run_dir_or_csv, "env_steps")
    ax = ax or make_axes()
    steps, returns = curve(rows, "episode_return")
    ax.plot(
        steps, returns, color=TRAINING_COLOR, lw=1.2, label="training episodes, with exploration"
    )
    steps, means, stds = curve(rows, "evaluation_return_mean", "evaluation_return_std")
    label = "greedy evaluation: mean and standard deviation"
    ax.plot(steps, means, color=EVALUATION_COLOR, lw=2, marker="o", ms=4, label=label)
    ax.fill_between(steps, means - stds, means + stds, color=EVALUATION_COLOR, alpha=0.15, lw=0)
    ax.set_ylabel("return of an episode")
    return finish_axes(ax, "env steps", bool(rows))


def read_curve(run_dir_or_csv: str | Path, count: str) -> list[dict[str, str]]:
    """The rows of a run's metrics; ValueError where there is no such file."""
    path = Path(run_dir_or_csv)
    path = path / NAME if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist, expected a run's folder or its {NAME}. Give the folder that "
            "training printed as run_dir."
        )
    return read_rows(path, count)


def make_axes() -> Axes:
    """Axes of a new figure."""
    return Figure(figsize=(7, 4), layout="constrained").add_subplot()


def finish_axes(ax: Axes, label: str, known: bool, lines: Sequence[Artist] | None = None) -> Axes:
    """Label the axis of counts, and show the legend or that there is nothing yet."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # such as 2.5k or 10M
    ax.margins(x=0.01)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    if known:
        ax.legend(frameon=False, loc="best", **({} if lines is None else {"handles": lines}))
    else:
        ax.text(0.5, 0.5, "no metrics yet", ha="center", va="center", transform=ax.transAxes)
    return ax


def save_learning_curve(run_dir: Path, plot: Callable[[Path], Axes] = plot_learning_curve) -> Path:
    """Save `learning_curve.png` in the run's folder, if it changes; returns its path."""
    ax = plot(run_dir)
    figure: Any = ax.figure
    path = run_dir / "learning_curve.png"
    figure.savefig(picture := io.BytesIO(), dpi=120, format="png")
    if path.is_file() and path.read_bytes() == picture.getvalue():
        return path
    return write_file(path, lambda to: to.write_bytes(picture.getvalue()))


def curve(
    rows: Sequence[dict[str, str]], *columns: str, count: str = "env_steps"
) -> list[np.ndarray]:
    """Counts and the given columns, in the rows where the first of these holds a number."""
    names = (count, *columns)
    table = np.array([[number_in(row, name) for name in names] for row in rows])
    table = table.reshape(-1, len(names))
    return list(table[np.isfinite(table[:, 1])].T)
