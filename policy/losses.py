"""Losses and divergences: pure functions, one equation each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from kytolly.policy.hyper import Number


def huber(error: tf.Tensor, delta: Number) -> tf.Tensor:
    """Huber loss of each error, in squared units of the errors, of any shape.

    Quadratic up to `delta`, linear beyond: one surprising row moves the weights by a bounded
    amount.

    Args:
        error: Target minus estimate, in reward units.
        delta: Where the loss turns linear, in reward units.

    Source: Huber 1964, "Robust Estimation of a Location Parameter"; Mnih et al. 2015 clip the
    error term to [-1, 1], which is this loss with delta = 1.
    """
    size = tf.abs(error)
    quadratic = tf.minimum(size, delta)
    return 0.5 * quadratic * quadratic + delta * (size - quadratic)


def quantile_huber(
    estimate: tf.Tensor, target: tf.Tensor, level: tf.Tensor, delta: Number
) -> tf.Tensor:
    """[B] loss that is least where each quantile has its level's share of the samples below it.

    Args:
        estimate: [B, N] quantiles, in reward units.
        target: [B, M] samples, or quantiles of even weight, in reward units.
        level: [B, N], or [N], level in [0, 1] of each quantile.
        delta: Where the loss turns linear, in reward units.

    Returns:
        [B] sums over the quantiles of means over the samples, in reward units.

    Source: Dabney et al. 2018, arXiv:1806.06923, equation 3; arXiv:1710.10044, equation 10, has
    `delta` times as much.
    """
    error = target[:, tf.newaxis] - tf.expand_dims(estimate, -1)  # [B, N, M]
    weight = tf.abs(tf.expand_dims(level, -1) - tf.cast(error < 0.0, tf.float32))
    return tf.reduce_sum(tf.reduce_mean(weight * huber(error, delta) / delta, axis=-1), axis=-1)


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
    clipped = tf.clip_by_value(ratio, 1.0 - clip_range, 1.0 + clip_range)
    return -tf.reduce_mean(tf.minimum(ratio * advantage, clipped * advantage))


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


def cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    smoothing: float = 0.0,
    class_weights: np.ndarray | None = None,
    mask: tf.Tensor | None = None,
) -> tf.Tensor:
    """[] weighted mean of -sum_c target_c log p_c, in nats.

    The target is 1 - smoothing for the label plus smoothing / C for each of the C classes.

    Args:
        logits: [..., C] of any float type; computed in float32.
        labels: [...] int classes; tokens, if the axes before are [B, T].
        smoothing: Probability that all classes share.
        class_weights: [C] weight of each label; the mean is over the sum of weights. None: 1.
        mask: [...] true where a label counts, such as at tokens that are no padding; None: all.

    Source: Szegedy et al. 2016, arXiv:1512.00567, section 7 (smoothing).
    """
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32), axis=-1)
    of_label = tf.gather(log_probs, labels, batch_dims=len(labels.shape), axis=-1)
    losses = -(1.0 - smoothing) * of_label
    if smoothing:
        losses -= smoothing * tf.reduce_mean(log_probs, axis=-1)
    weights = tf.ones_like(losses)
    if class_weights is not None:
        weights = tf.gather(tf.convert_to_tensor(class_weights, tf.float32), labels)
    if mask is not None:
        weights *= tf.cast(mask, tf.float32)
    return tf.reduce_sum(weights * losses) / tf.maximum(tf.reduce_sum(weights), 1e-12)


def balanced_class_weights(labels: npt.ArrayLike, num_classes: int) -> np.ndarray:
    """[C] float32 N / (C * count) of each class; 0 for one without a row.

    `C` counts only classes with rows, so that the mean weight of a row is 1.

    Source: King & Zeng 2001, "Logistic Regression in Rare Events Data"; scikit-learn's "balanced".
    """
    counts = np.bincount(np.asarray(labels), minlength=num_classes).astype(np.float64)
    seen = counts > 0
    weights = np.divide(counts.sum(), counts * seen.sum(), where=seen, out=np.zeros_like(counts))
    return weights.astype(np.float32)
