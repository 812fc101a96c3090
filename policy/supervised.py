"""Supervised learning: a loss of rows and targets, minimized by AdamW."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.policy.base import Loss, Policy
from kytolly.policy.hyper import Hyper
from kytolly.policy.optimizers import make_adamw
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
