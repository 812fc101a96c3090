"""The best of many scores, without sorting all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

GROUPED = 64  # scores whose maximum is looked at in their place


def best_places(scores: np.ndarray, top: int, places: np.ndarray | None = None) -> np.ndarray:
    """[n] places of the largest scores, best first; of equal scores the smaller place comes first.

    Args:
        scores: [D].
        top: At most this many places.
        places: [P] places that may be returned, rising; None: all of them.
    """
    if places is None:
        places = np.flatnonzero(scores >= _floor(scores, top))
    chosen = scores[places]
    if len(chosen) > top > 0:
        best = chosen >= nth_best(chosen, top)
        places, chosen = places[best], chosen[best]
    return places[np.argsort(-chosen, kind="stable")[:top]]


def best_nonzero(scores: np.ndarray, top: int) -> np.ndarray:
    """`best_places` without those whose score is 0."""
    floor = _floor(scores, top)
    return best_places(
        scores, top, np.flatnonzero(scores >= floor if floor > 0.0 else scores != 0.0)
    )


def _floor(scores: np.ndarray, top: int) -> float:
    """A number that at least `top` of the scores reach; of many scores, few more.

    A group's maximum is one of the scores, so the maxima's n-th best is at most that of all scores.
    """
    groups = len(scores) // GROUPED
    if not 0 < top <= groups:
        return -math.inf
    maxima = scores[: groups * GROUPED].reshape(GROUPED, groups).max(axis=0)
    return nth_best(maxima, top)


def nth_best(scores: np.ndarray, n: int) -> float:
    """The n-th highest of [D] scores; the lowest where there are fewer."""
    n = min(n, len(scores))
    return float(np.partition(scores, len(scores) - n)[len(scores) - n])


def weighted_best(
    lists: Iterable[tuple[float, np.ndarray, np.ndarray]], top: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best documents by a weighted sum of score lists, each with some documents only.

    Args:
        lists: (weight, [n] places of documents, [n] their scores); a place once in each list.
        top: At most this many documents.

    Returns:
        places: [n], best first; of equal sums the smaller place first. Sums of 0 are left out.
        scores: [n] float64 sums.

    Raises:
        ValueError: A weight is not finite.
    """
    places, scores = [np.zeros(0, np.int64)], [np.zeros(0)]
    for weight, docs, values in lists:
        if not math.isfinite(weight):
            raise ValueError(
                f"a word has the weight {weight}; expected a finite number: leave the word out."
            )
        places.append(np.asarray(docs, np.int64))
        scores.append(weight * np.asarray(values, np.float64))
    known, which = np.unique(np.concatenate(places), return_inverse=True)
    sums = np.bincount(which, np.concatenate(scores), len(known))
    best = best_places(sums, top, np.flatnonzero(sums))
    return known[best], sums[best]
