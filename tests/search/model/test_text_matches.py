"""What two texts have in common."""

import math

import numpy as np
import pytest

from kytolly.search.model.text_matches import (
    KERNEL_WIDTH,
    KERNELS,
    PAIR_FEATURES,
    match_features,
    next_to_each_other,
)

A, B, HALF = (1.0, 0.0), (0.0, 2.0), (1.0, math.sqrt(3.0))  # cosines: A B 0, A HALF 0.5


def features(question, context, same, rarities, words=None):
    words = words or [np.ones(len(one)) for one in (question, context)]
    arrays = [[question], [context]], [words], [rarities]
    vectors = [np.array(one, np.float32) for one in arrays[0]]
    masks = [np.array([one], np.float32) for one in words]
    rare = [np.array([one], np.float32) for one in rarities]
    made = match_features(vectors, masks, rare, np.array([same], np.float32))
    return [np.asarray(one)[0] for one in made]


def kernel(cosine, center):
    return math.exp(-(((cosine - center) / KERNEL_WIDTH) ** 2) / 2)


def test_each_token_and_the_pair_say_what_they_share():
    same = [[1, 0, 0], [0, 0, 0]]  # the question "a b" and the context "a half half"
    question, context, pair = features([A, B], [A, HALF, HALF], same, [[0.3, 0.1], [0.3, 0.6, 0.6]])
    near = math.sqrt(3.0) / 2.0  # of b and half
    np.testing.assert_allclose(question, [[1, 1, 0.3, 0.3], [near, 0, 0.1, 0]], atol=1e-6)
    np.testing.assert_allclose(context[0], [1, 1, 0.3, 0.3], atol=1e-6)
    np.testing.assert_allclose(context[2], [near, 0, 0.6, 0], atol=1e-6)
    assert pair.shape == (PAIR_FEATURES,)
    for place, center in enumerate(KERNELS):
        first = math.log1p(kernel(1.0, center) + 2 * kernel(0.5, center))
        second = math.log1p(kernel(0.0, center) + 2 * kernel(near, center))
        assert pair[place] == pytest.approx(0.75 * first + 0.25 * second, abs=1e-5)
    rest = pair[len(KERNELS) :]
    bigram = math.sqrt(near)  # a next to half matches a next to b
    expected = [0.75, 0.75 + 0.25 * near, 0.0, 0.75 * bigram]
    expected += [0.2, 0.2 + 0.8 * near, 0.2, 0.5, math.log(4.0), 0.0]
    np.testing.assert_allclose(rest, expected, atol=1e-5)


def test_padding_changes_nothing_but_the_number_of_places():
    short = features([A, B], [A, HALF], [[1, 0], [0, 0]], [[0.3, 0.1], [0.3, 0.6]])
    zero = (0.0, 0.0)
    long = features(
        [A, B, zero],
        [A, HALF, zero, zero],
        [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]],  # padding is equal to padding
        [[0.3, 0.1, 0.0], [0.3, 0.6, 0.0, 0.0]],
        [[1, 1, 0], [1, 1, 0, 0]],
    )
    np.testing.assert_allclose(long[2], short[2], atol=1e-6)
    np.testing.assert_allclose(long[1][:2], short[1], atol=1e-6)


def test_the_rarest_token_that_nothing_is_like_counts_as_missed():
    pair = features([A, B], [A], [[1], [0]], [[0.3, 0.7], [0.3]])[2]
    assert pair[-1] == pytest.approx(0.7)


def test_neighbors_match_where_both_match():
    values = np.array([[[0.5, 0.0], [0.0, 0.4]]], np.float32)
    np.testing.assert_allclose(next_to_each_other(values)[0], [[0.2, 0.0], [0.0, 0.0]], atol=1e-7)
