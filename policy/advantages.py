"""Advantages and what values explain: pure functions, one equation each."""

from __future__ import annotations

import math

import tensorflow as tf


def generalized_advantage(
    td_error: tf.Tensor, discount: tf.Tensor, last: tf.Tensor, gae_lambda: float
) -> tf.Tensor:
    """Advantages: exponentially weighted sums of temporal differences, up to an episode's end.

    The recursion A[t] = td_error[t] + w[t] A[t+1] is linear, so it is solved by doubling: after
    k passes every row holds the sum over the 2**k steps that follow it. log2(T) passes over all
    rows cost a CPU less than T steps over one.

    Args:
        td_error: [T, E] reward + discount * next value - value, in reward units.
        discount: [T, E] gamma, or 0 where the episode terminated.
        last: [T, E] bool, the episode ended with the step, for either reason.
        gae_lambda: Weight of longer sums, in [0, 1].

    Returns:
        [T, E] advantages, in reward units.

    Source: Schulman et al. 2016, arXiv:1506.02438, equation 16; doubling after Blelloch 1990,
    "Prefix Sums and Their Applications", section 1.4.
    """
    advantage = td_error
    weight = tf.where(last, 0.0, gae_lambda * discount)
    step, length = 1, td_error.shape[0]
    while step < length:
        beyond = [[0, step], [0, 0]]
        advantage += weight * tf.pad(advantage[step:], beyond)
        weight *= tf.pad(weight[step:], beyond)
        step *= 2
    return advantage


def explained_variance(estimate: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """[] share of the targets' variance that [B] estimates explain: 1 is perfect, 0 a constant.

    NaN where the targets do not vary.
    """
    variance = tf.math.reduce_variance(target)
    share = tf.math.reduce_variance(target - estimate) / variance
    return tf.where(variance > 0.0, 1.0 - share, math.nan)
