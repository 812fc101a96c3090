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


def interval(returns: Sequence[float]) -> tuple[float, float]:
    """Percentile bootstrap interval of the interquartile mean; one seed has none."""
    values = np.asarray(returns, float)
    if len(values) == 1:
        return values[0].item(), values[0].item()
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = stats.trim_mean(values[draws], 0.25, axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
