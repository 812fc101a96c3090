"""Which of several choices is better than none beyond chance.

Many choices are tried on the same queries, so the best one looks better than it is. A permutation
test says how large the best of so many would be by chance.

Sources: Westfall & Young 1993, "Resampling-Based Multiple Testing" (the largest statistic under
random signs); Smucker, Allan & Carterette 2007, "A Comparison of Statistical Significance Tests for
Information Retrieval Evaluation".
"""

from __future__ import annotations

import math

import numpy as np

CHANCE = 0.1  # most probability that the best choice is no better than none
FLIPS, FLIPS_AT_ONCE = 2_000, 250  # draws of signs


def best_row(gains: np.ndarray, most: float, seed: int = 0) -> tuple[int | None, float]:
    """The row of [m, Q] gains with the largest mean among those above 0 beyond chance.

    Args:
        gains: [m, Q] of each of m choices.
        most: Largest probability that counts as beyond chance.
        seed: Seed of the signs.

    Returns:
        The row, None if there is none; and the probability of the best row under chance.
    """
    count = gains.shape[1]
    if count < 2:
        return None, 1.0
    rng, squares = np.random.default_rng(seed), np.mean(np.square(gains), axis=1)
    by_chance = []
    for _ in range(FLIPS // FLIPS_AT_ONCE):
        signs = 2.0 * rng.integers(0, 2, (FLIPS_AT_ONCE, count), np.int8) - 1.0
        means = signs @ gains.T / count
        by_chance.append(_statistic(means, squares, count).max(axis=1))
    by_chance = np.concatenate(by_chance)
    statistic = _statistic(gains.mean(axis=1), squares, count)
    chances = (1 + (by_chance[:, np.newaxis] >= statistic).sum(axis=0)) / (FLIPS + 1)
    passed = np.where(chances <= most, gains.mean(axis=1), -np.inf)
    best = int(passed.argmax())
    return (best if passed[best] > 0.0 else None), float(chances.min())


def _statistic(mean: np.ndarray, squares: np.ndarray, count: int) -> np.ndarray:
    """Student's t of means, from mean squares."""
    variance = np.maximum(squares - mean * mean, 1e-12)
    return mean * math.sqrt(count) / np.sqrt(variance)
