import numpy as np
import pytest

from kytolly.retrieval.ranking import best_places, nth_best


def test_the_nth_best_score():
    assert nth_best(np.array([3.0, 9.0, 5.0]), 2) == 5.0
    assert nth_best(np.array([3.0, 9.0]), 5) == 3.0


@pytest.mark.parametrize("top", [0, 1, 2, 3, 4, 9])
def test_the_best_places_are_those_of_a_stable_sort(top):
    scores = np.array([2.0, 5.0, 2.0, 7.0, 5.0, 2.0])
    assert best_places(scores, top).tolist() == [3, 1, 4, 0, 2, 5][:top]
    some = np.array([0, 2, 4, 5])
    assert best_places(scores, top, some).tolist() == [4, 0, 2, 5][:top]
