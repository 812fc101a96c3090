"""Supervised learning: a loss of rows and targets, minimized by AdamW."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from kytolly.policy.base import Loss, Policy
from kytolly.policy.optimizers import WarmUp, make_adam, make_schedule

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
        cfg: Any,
        total_updates: int,
    ):
        self.loss_function, self._own_names = loss_function, tuple(metric_names)
        self.metric_names = ("loss", *self._own_names, "grad_norm")
        super().__init__(network, None, make_adamw(network, cfg, total_updates), cfg)

    def loss(self, batch: Batch, weights: list[tf.Tensor]) -> Loss:
        """The task's loss and metrics of a batch."""
        of_network = functools.partial(self.loss_function, self.network)
        loss, metrics = self.weights.call(weights, batch, function=of_network)
        if set(metrics) != set(self._own_names):
            raise ValueError(
                f"the loss gives the metrics {sorted(metrics)}, and metric_names are "
                f"{sorted(self._own_names)}, expected the same names. Change one of them."
            )
        values = [loss, *(metrics[name] for name in self._own_names)]
        values = [tf.cast(value, tf.float32) for value in values]
        return Loss(values[0], (), tf.stack(values))


def make_adamw(network: keras.Model, cfg: Any, total_updates: int) -> keras.optimizers.Optimizer:
    """AdamW for a network's `FlatWeights`, with the configured schedule."""
    final = None if cfg.schedule == "constant" else 0.0
    shape: Any = "cosine" if cfg.schedule == "cosine" else "linear"
    rate = make_schedule(cfg.learning_rate, final, total_updates, cfg.warmup_ratio, shape)
    if not callable(rate):  # as a variable it would be restored, whatever the config says now
        rate = WarmUp(rate, 1)
    weights, epsilon = network.trainable_variables, cfg.adam_epsilon
    adamw = make_adam(rate, weights, cfg.weight_decay, epsilon=epsilon)
    if network.dtype_policy.name != "mixed_float16":
        return adamw
    from kytolly.policy.loss_scale import LossScale

    return LossScale(adamw)
