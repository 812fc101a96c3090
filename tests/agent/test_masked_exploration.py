"""Random actions where actions are masked: each allowed one is equally likely."""

import numpy as np
import tensorflow as tf

from kytolly.agent.exploration import allowed_action, host_allowed_action
from kytolly.policy.action_values import ActionValues

MASK = np.array([[0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool)


def test_a_place_is_one_among_the_allowed_actions():
    place = np.array([0.5, 0.99, 0.0, 0.3], np.float32)
    np.testing.assert_array_equal(host_allowed_action(MASK, place), [3, 3, 2, 0])
    np.testing.assert_array_equal(
        allowed_action(tf.constant(MASK), tf.constant(place)), [3, 3, 2, 0]
    )


def test_the_last_place_below_1_is_the_last_allowed_action():
    last = np.full(4, np.nextafter(np.float32(1), np.float32(0)), np.float32)
    for found in (
        allowed_action(tf.constant(MASK), tf.constant(last)),
        host_allowed_action(MASK, last),
    ):
        np.testing.assert_array_equal(found, [3, 3, 2, 0])


def test_all_allowed_actions_are_equally_likely():
    place = np.random.default_rng(0).random(6_000, np.float32)
    mask = np.tile([1, 0, 1, 1], (6_000, 1)).astype(bool)
    counts = np.bincount(host_allowed_action(mask, place), minlength=4)
    np.testing.assert_allclose(counts, [2_000, 0, 2_000, 2_000], atol=150)


def test_a_mask_that_forbids_everything_forbids_nothing_in_targets():
    values = tf.constant([[1.0, 3.0], [1.0, 3.0]])
    masked = ActionValues(2, True).mask(values, tf.constant([[True, False], [False, False]]))
    np.testing.assert_array_equal(tf.reduce_max(masked, axis=1), [1.0, 3.0])
