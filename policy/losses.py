"""Losses and divergences of policy gradients: pure functions, one equation each."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy.hyper import Number


def clipped_surrogate(ratio: tf.Tensor, advantage: tf.Tensor, clip_range: Number) -> tf.Tensor:
    """Policy loss that gains nothing from moving a probability ratio beyond the clip range.

    Args:
        ratio: [B] probability of the action now over that when it was taken.
        advantage: [B] how much better than expected it was; usually normalized.
        clip_range: Distance from 1 beyond which the ratio brings nothing more.

    Returns:
        [] loss, to be minimized.

    Source: Schulman et al. 2017, arXiv:1707.06347, equation 7.
    """
    return -tf.reduce_mean(surrogate(ratio, advantage, clip_range))


def surrogate(ratio: tf.Tensor, advantage: tf.Tensor, clip_range: Number) -> tf.Tensor:
    """[B] rows of which `clipped_surrogate` is the negative mean."""
    clipped = tf.clip_by_value(ratio, 1.0 - clip_range, 1.0 + clip_range)
    return tf.minimum(ratio * advantage, clipped * advantage)


def value_loss(
    value: tf.Tensor, old_value: tf.Tensor, target: tf.Tensor, clip_range: Number | None
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
    return tf.reduce_mean(value_error(value, old_value, target, clip_range))


def value_error(
    value: tf.Tensor, old_value: tf.Tensor, target: tf.Tensor, clip_range: Number | None
) -> tf.Tensor:
    """[B] squared errors of which `value_loss` is the mean."""
    error = tf.square(value - target)
    if clip_range is not None:
        moved = old_value + tf.clip_by_value(value - old_value, -clip_range, clip_range)
        error = tf.maximum(error, tf.square(moved - target))
    return error


def approximate_kl(log_ratio: tf.Tensor) -> tf.Tensor:
    """[] estimate of the KL divergence from the old to the new policy, in nats; never negative.

    Args:
        log_ratio: [B] log-probability of the action now minus that when it was taken.

    Source: Schulman 2020, "Approximating KL Divergence", estimator k3.
    """
    return tf.reduce_mean(divergence_terms(log_ratio))


def divergence_terms(log_ratio: tf.Tensor) -> tf.Tensor:
    """[B] terms of which `approximate_kl` is the mean."""
    return tf.exp(log_ratio) - 1.0 - log_ratio


def categorical_kl(logits: tf.Tensor, reference: tf.Tensor) -> tf.Tensor:
    """[B] KL divergence of a categorical policy from a reference, KL(policy || reference), in nats.

    It is the sum over actions of p (log p - log q): exact, where the papers estimate it by
    log p - log q of the action that was drawn, and subtract that from the reward. Here it is a term
    of the loss, so it weighs each observation by itself: no action is blamed for a divergence that
    follows later.

    Args:
        logits: [B, A] of the policy. An action that a mask forbids in both adds 0.
        reference: [B, A] logits of the reference.

    Source: Ziegler et al. 2019, arXiv:1909.08593, equation 2; Ouyang et al. 2022,
    arXiv:2203.02155, equation 2.
    """
    log_p, log_q = tf.nn.log_softmax(logits), tf.nn.log_softmax(reference)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)
