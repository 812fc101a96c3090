"""Statistics of a training result over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 10_000
CONFIDENCE = 0.95


def summary(returns: Sequence[float]) -> dict[str, Any]:
    """Interquartile mean with its bootstrap interval, and plainer statistics, over seeds."""
    low, high = interval(returns)
    return {
        "interquartile_mean": interquartile_mean(returns),
        "interval": [low, high],
        "mean": float(np.mean(returns)),
        "worst": min(returns),
        "best": max(returns),
        "returns": list(returns),
    }


def interquartile_mean(returns: Sequence[float]) -> float:
    """Mean without the lowest and the highest quarter.

    Source: Agarwal et al. 2021, arXiv:2108.13264, "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice".
    """
    return float(stats.trim_mean(np.asarray(returns, float), 0.25))


def interval(returns: Any, resamples: int = RESAMPLES) -> tuple[Any, Any]:
    """Ends of the percentile bootstrap interval of the interquartile mean; one seed has none.

    All seeds are of one task, so the strata of a stratified bootstrap are one: whole runs are drawn
    again, the same ones at every moment.

    Args:
        returns: [N] of N seeds, or [N, T] at T moments.
        resamples: Times that N seeds are drawn.

    Returns:
        The lower and the upper end: two numbers, or [T] each.

    Source: as `interquartile_mean`, section 4.
    """
    values = np.asarray(returns, float)
    if values.ndim == 2:
        low, high = zip(*(interval(moment, resamples) for moment in values.T), strict=True)
        return np.array(low), np.array(high)
    if len(values) == 1:
        return values[0].item(), values[0].item()
    draws = np.random.default_rng(0).integers(len(values), size=(resamples, len(values)))
    means = stats.trim_mean(values[draws], 0.25, axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def interval_text(summary: dict[str, Any], digits: int = 1) -> str:
    """The interquartile mean and its interval for a reader, such as `480.2 (455.0, 500.0)`."""
    low, high = summary["interval"]
    return f"{summary['interquartile_mean']:,.{digits}f} ({low:,.{digits}f}, {high:,.{digits}f})"
