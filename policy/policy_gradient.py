"""The formulas of policy gradients: pure functions, one equation each."""

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


def clipped_surrogate(ratio: tf.Tensor, advantage: tf.Tensor, clip_range: float) -> tf.Tensor:
    """Policy loss that gains nothing from moving a probability ratio beyond the clip range.

    Args:
        ratio: [B] probability of the action now over that when it was taken.
        advantage: [B] how much better than expected it was; usually normalised.
        clip_range: Distance from 1 beyond which the ratio brings nothing more.

    Returns:
        [] loss, to be minimised.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    clipped = tf.clip_by_value(ratio, 1.0 - clip_range, 1.0 + clip_range)
    return -tf.reduce_mean(tf.minimum(ratio * advantage, clipped * advantage))


def value_loss(
    value: tf.Tensor, old_value: tf.Tensor, target: tf.Tensor, clip_range: float | None
) -> tf.Tensor:
    """Mean squared error of values, optionally with their change clipped.

    Args:
        value: [B] estimates, in reward units.
        old_value: [B] estimates before learning.
        target: [B] value targets.
        clip_range: Largest change that counts; None for no clipping.

    Returns:
        [] loss, in squared reward units.

    Source: for clipping, the published code of Schulman et al. 2017 (not in the paper):
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details, detail 9.
    """
    error = tf.square(value - target)
    if clip_range is not None:
        moved = old_value + tf.clip_by_value(value - old_value, -clip_range, clip_range)
        error = tf.maximum(error, tf.square(moved - target))
    return tf.reduce_mean(error)


def approximate_kl(log_ratio: tf.Tensor) -> tf.Tensor:
    """[] estimate of the KL divergence from the old to the new policy, in nats; never negative.

    Args:
        log_ratio: [B] log-probability of the action now minus that when it was taken.

    Source: Schulman 2020, "Approximating KL Divergence", estimator k3.
    """
    return tf.reduce_mean(tf.exp(log_ratio) - 1.0 - log_ratio)
