"""Losses: pure functions, one equation each."""

from __future__ import annotations

import tensorflow as tf


def weighted_huber(td_error: tf.Tensor, weight: tf.Tensor, delta: float) -> tf.Tensor:
    """Mean of the Huber loss over rows, each times its weight.

    Quadratic up to `delta`, linear beyond, so that one surprising row moves the weights by a
    bounded amount.

    Args:
        td_error: [B] target minus estimate, in reward units.
        weight: [B] importance weight; 1 for uniform replay.
        delta: where the loss turns linear, in reward units.

    Returns:
        [] loss, in squared reward units.

    Source: Huber 1964, "Robust Estimation of a Location Parameter"; Mnih et al. 2015 clip the
    error term to [-1, 1], which is this loss with delta = 1.
    """
    size = tf.abs(td_error)
    quadratic = tf.minimum(size, delta)
    return tf.reduce_mean(weight * (0.5 * quadratic * quadratic + delta * (size - quadratic)))
