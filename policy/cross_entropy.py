"""Cross-entropy of classes and of tokens, with smoothed labels and weighted classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    smoothing: float = 0.0,
    class_weights: Any = None,
    mask: Any = None,
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


def balanced_class_weights(labels: Any, num_classes: int) -> np.ndarray:
    """[C] float32 N / (C * count) of each class; 0 for one without a row.

    `C` counts only classes with rows, so that the mean weight of a row is 1.

    Source: King & Zeng 2001, "Logistic Regression in Rare Events Data"; scikit-learn's "balanced".
    """
    counts = np.bincount(np.asarray(labels), minlength=num_classes).astype(np.float64)
    seen = counts > 0
    weights = np.divide(counts.sum(), counts * seen.sum(), where=seen, out=np.zeros_like(counts))
    return weights.astype(np.float32)
