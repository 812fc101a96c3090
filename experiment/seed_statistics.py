"""Statistics of a training result over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from kytolly.callback.base import places

RESAMPLES = 10_000
CONFIDENCE = 0.95

Pair = tuple[ArrayLike, ArrayLike]  # [N] values of x and [K] values of y, of the seeds of one task


class SeedSummary(TypedDict):
    """Statistics over seeds, as JSON has them."""

    interquartile_mean: float
    interval: list[float]
    mean: float
    worst: float
    best: float
    returns: list[float]


class Improvement(TypedDict):
    """The probability that one algorithm improves on another, as JSON has it."""

    probability_of_improvement: float
    probability_interval: list[float]


def summary(returns: Sequence[float]) -> SeedSummary:
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


def interval(returns: ArrayLike, resamples: int = RESAMPLES) -> tuple[Any, Any]:
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


def tasks_interval(scores: Sequence[ArrayLike]) -> tuple[float, float]:
    """Ends of the percentile bootstrap interval of the interquartile mean of all runs of all tasks.

    The seeds of each task are drawn again, independently of the other tasks'.

    Args:
        scores: [N] normalized scores of N seeds, for each task.

    Source: as `interquartile_mean`, section 4; rliable's `StratifiedBootstrap`.
    """
    rng = np.random.default_rng(0)
    drawn = []
    for task in scores:
        values = np.asarray(task, float)
        drawn.append(values[rng.integers(len(values), size=(RESAMPLES, len(values)))])
    means = stats.trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def iqm_difference(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Interquartile mean of x minus that of y.

    Args:
        x: [..., N] values of N seeds.
        y: [..., K] values of K seeds.

    Returns:
        [...] differences.

    Source: as `interquartile_mean`.
    """
    return stats.trim_mean(x, 0.25, axis=-1) - stats.trim_mean(y, 0.25, axis=-1)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Probability that a run of x has a higher value than a run of y; equal values count half.

    It is the statistic U of Mann and Whitney, as a share of all pairs.

    Args:
        x: [..., N] values of N seeds.
        y: [..., K] values of K seeds.

    Returns:
        [...] probabilities, 0 to 1.

    Source: as `interquartile_mean`, section 4.3; rliable's `probability_of_improvement`.
    """
    count_x, count_y = np.shape(x)[-1], np.shape(y)[-1]
    ranks = stats.rankdata(np.concatenate([x, y], axis=-1), axis=-1)
    wins = ranks[..., :count_x].sum(-1) - count_x * (count_x + 1) / 2
    return wins / (count_x * count_y)


def difference_interval(
    pairs: Sequence[Pair], statistic: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[float, float]:
    """Ends of the percentile bootstrap interval of a statistic of two, averaged over tasks.

    In each task the seeds of x and those of y are drawn again, independently of each other.

    Args:
        pairs: One for each task.
        statistic: From [R, N] and [R, K] to [R].

    Source: as `interquartile_mean`, section 4; rliable's `StratifiedIndependentBootstrap`.
    """
    rng = np.random.default_rng(0)
    drawn = []
    for pair in pairs:
        x, y = (np.asarray(values, float) for values in pair)
        x = x[rng.integers(len(x), size=(RESAMPLES, len(x)))]
        y = y[rng.integers(len(y), size=(RESAMPLES, len(y)))]
        drawn.append(statistic(x, y))
    low, high = np.quantile(np.mean(drawn, axis=0), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def improvement(pairs: Sequence[Pair], lower_is_better: bool = False) -> Improvement:
    """Mean over tasks of the probability that x improves on y, with its interval.

    Args:
        pairs: One for each task.
        lower_is_better: An improvement is a lower value.
    """
    ordered = [(y, x) for x, y in pairs] if lower_is_better else list(pairs)
    statistic = probability_of_improvement
    return {
        "probability_of_improvement": float(np.mean([statistic(x, y) for x, y in ordered])),
        "probability_interval": list(difference_interval(ordered, statistic)),
    }


def interval_text(summary: SeedSummary, digits: int | None = None) -> str:
    """The interquartile mean and its interval for a reader, such as `480.2 (455.0, 500.0)`."""
    numbers = (summary["interquartile_mean"], *summary["interval"])
    digits = places(*numbers) if digits is None else digits
    mean, low, high = (f"{number:,.{digits}f}" for number in numbers)
    return f"{mean} ({low}, {high})"


def return_text(value: float, *beside: float) -> str:
    """A return for a reader, as 0.734 or 475.2, with the digits of the largest beside it."""
    return f"{value:,.{places(value, *beside)}f}"
