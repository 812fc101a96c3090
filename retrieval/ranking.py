"""The best of many scores, without sorting all of them."""

from __future__ import annotations

import numpy as np


def best_places(scores: np.ndarray, top: int, places: np.ndarray | None = None) -> np.ndarray:
    """[n] places of the largest scores, best first; of equal scores the smaller place comes first.

    Args:
        scores: [D].
        top: At most this many places.
        places: [P] places that may be returned, rising; None: all of them.
    """
    if places is None:
        places = np.arange(len(scores))
    found = scores[places]
    if len(found) > top > 0:
        kept = found >= nth_best(found, top)
        places, found = places[kept], found[kept]
    return places[np.argsort(-found, kind="stable")[:top]]


def nth_best(scores: np.ndarray, n: int) -> float:
    """The n-th highest of [D] scores; the lowest where there are fewer."""
    n = min(n, len(scores))
    return float(np.partition(scores, len(scores) - n)[len(scores) - n])
