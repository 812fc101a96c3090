import numpy as np
import pytest

from kytolly.search.index.ranking import GROUPED, best_nonzero, best_places, nth_best


def test_the_nth_best_score():
    assert nth_best(np.array([3.0, 9.0, 5.0]), 2) == 5.0
    assert nth_best(np.array([3.0, 9.0]), 5) == 3.0


@pytest.mark.parametrize("top", [0, 1, 2, 3, 4, 9])
def test_the_best_places_are_those_of_a_stable_sort(top):
    scores = np.array([2.0, 5.0, 2.0, 7.0, 5.0, 2.0])
    assert best_places(scores, top).tolist() == [3, 1, 4, 0, 2, 5][:top]
    some = np.array([0, 2, 4, 5])
    assert best_places(scores, top, some).tolist() == [4, 0, 2, 5][:top]


@pytest.mark.parametrize("top", [0, 1, 10, 40, 5_000])
@pytest.mark.parametrize("kind", ["dense", "sparse", "ties", "negative", "zeros"])
def test_the_best_of_many_scores_are_those_of_a_stable_sort(kind, top):
    """More scores than fit into groups, with some left over."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=33 * GROUPED + 7).astype(np.float32)
    if kind == "sparse":  # fewer than `top` are found, sometimes
        scores = np.where(rng.random(len(scores)) < 0.01, np.abs(scores), 0.0)
    elif kind == "ties":
        scores = np.maximum(np.round(scores), 0.0)
    elif kind == "negative":
        scores = np.where(rng.random(len(scores)) < 0.01, -np.abs(scores), 0.0)
    elif kind == "zeros":
        scores = np.zeros_like(scores)
    order = np.argsort(-scores, kind="stable")
    np.testing.assert_array_equal(best_places(scores, top), order[:top])
    np.testing.assert_array_equal(best_nonzero(scores, top), order[scores[order] != 0][:top])
