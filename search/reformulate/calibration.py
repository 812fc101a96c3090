"""Whether the gains that a network expects come true."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from kytolly.record.files import write_file

BINS = 10
PICTURE = "calibration.png"


class CalibrationBins(NamedTuple):
    """Queries in bins of equal size, by the gain that the network expects.

    Attributes:
        queries: Numbers of queries.
        expected: Mean gains that the network expects.
        gain: Mean gains of its proposals.
        error: Standard errors of `gain`.
        changed: Shares of queries that the run changes.
    """

    queries: list[int]
    expected: list[float]
    gain: list[float]
    error: list[float]
    changed: list[float]


def bin_means(expected: np.ndarray, gain: np.ndarray, changed: np.ndarray) -> CalibrationBins:
    """Bins, as even as possible, of [q] queries; fewer than `BINS` where there are fewer queries.

    Args:
        expected: [q] gains that the network expects.
        gain: [q] gains of its proposals.
        changed: [q] whether the run changes the query.
    """
    order = np.argsort(expected, kind="stable")
    bins = np.array_split(order, min(BINS, len(order)))
    return CalibrationBins(
        queries=[len(one) for one in bins],
        expected=[float(expected[one].mean()) for one in bins],
        gain=[float(gain[one].mean()) for one in bins],
        error=[float(gain[one].std() / np.sqrt(len(one))) for one in bins],
        changed=[float(changed[one].mean()) for one in bins],
    )


def plot_calibration(found: CalibrationBins, metric: str) -> Figure:
    """Plot expected beside true gains, and the share of queries that are changed."""
    figure = Figure(figsize=(6, 5.5), layout="constrained")
    gains, shares = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    total = sum(found.queries)
    whole = sum(n * share for n, share in zip(found.queries, found.changed, strict=True)) / total
    gains.set_title(f"{total} queries, {whole:.0%} of them changed")
    ends = [min(found.expected), max(found.expected)]
    gains.plot(ends, ends, color="0.6", lw=1.2, ls=":", label="as expected")
    gains.errorbar(
        found.expected,
        found.gain,
        yerr=found.error,
        color="tab:blue",
        marker="o",
        ms=4,
        lw=1.5,
        capsize=2,
        label="true gain: mean and standard error",
    )
    gains.axhline(0.0, color="0.3", lw=0.8)
    gains.set_ylabel(f"true gain in {metric}")
    gains.legend(frameon=False)
    shares.plot(found.expected, found.changed, color="tab:blue", marker="o", ms=4, lw=1.5)
    shares.set(
        xlabel=f"expected gain in {metric}, mean of a bin", ylabel="changed", ylim=(-0.05, 1.05)
    )
    for ax in (gains, shares):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def save_calibration(run_dir: Path, found: CalibrationBins, metric: str) -> Path:
    """Save the plot in the run's folder; returns its path."""
    picture = io.BytesIO()
    plot_calibration(found, metric).savefig(picture, dpi=120, format="png")
    return write_file(run_dir / PICTURE, lambda to: to.write_bytes(picture.getvalue()))
