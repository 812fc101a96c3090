"""Supervised learning: a loss of rows and targets, minimized by AdamW."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.policy.adamw import make_adamw
from kytolly.policy.base import Loss, Policy
from kytolly.policy.hyper import Hyper
from kytolly.policy.weights import Weights

Batch = Mapping[str, Any]
LossFunction = Callable[[keras.Model, Batch], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]


class SupervisedPolicy(Policy):
    """A network that learns from batches of rows.

    Args:
        network: Built Keras model.
        loss_function: From the network, which it may call as it likes, and a batch: the loss [] and
            further metrics [], by name. Each metric is averaged over updates.
        metric_names: The names of those metrics.
        cfg: `config.supervised.SupervisedConfig`.
        total_updates: Length of the run, for the learning rate.
    """

    def __init__(
        self,
        network: keras.Model,
        loss_function: LossFunction,
        metric_names: tuple[str, ...],
        cfg: SupervisedConfig,
        total_updates: int,
    ):
        self.loss_function, self._task_metrics = loss_function, tuple(metric_names)
        self.metric_names = ("loss", *self._task_metrics, "grad_norm")
        super().__init__(network, None, make_adamw(network, cfg, total_updates), cfg)

    def loss(self, batch: Batch, weights: Weights, hyper: Hyper) -> Loss:
        """The task's loss and metrics of a batch."""
        of_network = functools.partial(self.loss_function, self.network)
        loss, metrics = self.weights.call(weights, batch, function=of_network)
        if set(metrics) != set(self._task_metrics):
            raise ValueError(
                f"the loss gives the metrics {sorted(metrics)}, and metric_names are "
                f"{sorted(self._task_metrics)}, expected the same names. Change one of them."
            )
        values = [loss, *(metrics[name] for name in self._task_metrics)]
        values = [tf.cast(value, tf.float32) for value in values]
        return Loss(values[0], None, tf.stack(values))


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
