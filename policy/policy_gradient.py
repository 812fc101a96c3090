"""The formulas of learning from rollouts: pure functions, one equation each."""

from __future__ import annotations

import math

import tensorflow as tf


def generalized_advantage(
    td_error: tf.Tensor, discount: tf.Tensor, last: tf.Tensor, gae_lambda: float
) -> tf.Tensor:
    """Advantages: exponentially weighted sums of temporal differences, up to an episode's end.

    Args:
        td_error: [T, E] reward + discount * next value - value, in reward units.
        discount: [T, E] gamma, or 0 where the episode terminated.
        last: [T, E] bool, the episode ended with the step, for either reason.
        gae_lambda: Weight of longer sums, in [0, 1].

    Returns:
        [T, E] advantages, in reward units.

    Source: Schulman et al. 2016, arXiv:1506.02438, equation 16.
    """
    return weighted_sums(td_error, tf.where(last, 0.0, gae_lambda * discount))


def weighted_sums(terms: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """[T, E] sums S[t] = terms[t] + weight[t] S[t+1], where nothing follows the last step.

    The recursion is linear, so it is solved by doubling: after k passes every row holds the sum
    over the 2**k steps that follow it. log2(T) passes over all rows cost a CPU less than T steps
    over one.

    Source: Blelloch 1990, "Prefix Sums and Their Applications", section 1.4.
    """
    sums, step, length = terms, 1, terms.shape[0]
    while step < length:
        beyond = [[0, step], [0, 0]]
        sums += weight * tf.pad(sums[step:], beyond)
        weight *= tf.pad(weight[step:], beyond)
        step *= 2
    return sums


def lambda_return(
    reward: tf.Tensor,
    discount: tf.Tensor,
    last: tf.Tensor,
    next_value: tf.Tensor,
    td_lambda: float,
) -> tf.Tensor:
    """Returns that mix those of one step, of two, and so on up to an episode's or rollout's end.

    G[t] = reward[t] + discount[t] ((1 - lambda) next_value[t] + lambda G[t+1]); after the last
    step of an episode, or of the rollout, there is no G[t+1], and next_value[t] takes its place.

    Args:
        reward: [T, E] of one env step.
        discount: [T, E] gamma, or 0 where the episode terminated.
        last: [T, E] bool, the episode ended with the step, for either reason.
        next_value: [T, E] value of what the step led to, before any reset, in reward units; for
            Q-learning that of the best action.
        td_lambda: Weight of longer returns, in [0, 1].

    Returns:
        [T, E] returns, in reward units. No gradient passes through them.

    Source: Sutton & Barto 2018, "Reinforcement Learning", equation 12.18; with the value of the
    best action Gallici et al. 2024, arXiv:2407.04811, section 3.4.
    """
    ends = tf.concat([last[:-1], tf.ones_like(last[-1:])], axis=0)
    weight = tf.where(ends, 0.0, td_lambda * discount)
    terms = reward + (discount - weight) * next_value
    return tf.stop_gradient(weighted_sums(terms, weight))


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
