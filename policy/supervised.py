"""Supervised learning: a loss of rows and targets, minimized by AdamW."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from kytolly.policy.accumulation import accumulated_gradient
from kytolly.policy.base import Loss, Policy
from kytolly.policy.schedule import WarmupDecay
from kytolly.policy.weights import Adam, clip_factor, concatenate, squared_norm

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

    def weight_gradients(self, batch: Batch) -> tuple[Any, Loss]:
        """As for every policy; with `gradient_accumulation`, the mean over the parts of a batch."""
        gradients, parts = super().weight_gradients, self.cfg.gradient_accumulation
        if parts == 1:
            return gradients(batch)
        size, metrics = self.weights.vector.shape[0], len(self.metric_names) - 1
        return accumulated_gradient(gradients, batch, parts, size, metrics)

    def gradient(self, batch: Batch) -> tuple[tf.Tensor, Loss]:
        """The gradient [W] of the loss, clipped if so configured, times the loss scale."""
        parts, loss = self.weight_gradients(batch)
        vector, scale = concatenate(parts), self.optimizer.scale_loss(1.0)
        norm = tf.sqrt(squared_norm(vector))
        if self.cfg.max_grad_norm is not None:
            vector *= clip_factor(norm, self.cfg.max_grad_norm * scale)
        return vector, loss._replace(metrics=tf.concat([loss.metrics, [norm / scale]], 0))


class AdamW(Adam):
    """Adam with decoupled weight decay, for a vector of weights of which some do not decay.

    Args:
        sizes: (numbers, whether they decay), for one weight after the other.
        decay: Share of the weights that a step with learning rate 1 takes away.
        options: As of Keras's Adam.

    Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
    """

    def __init__(self, sizes: list[tuple[int, bool]], decay: float, **options: Any):
        super().__init__(weight_decay=decay or None, **options)
        self._sizes = sizes

    def _apply_weight_decay(self, variables: Any) -> None:
        if self.weight_decay is None:
            return
        (variable,) = variables
        share = tf.cast(self.learning_rate, tf.float32) * self.weight_decay
        # Filled from the rate, so that no program holds a constant of the vector's length.
        shares = [
            tf.fill([count], share if decays else 0.0 * share) for count, decays in self._sizes
        ]
        variable.assign(variable.value * (1.0 - tf.concat(shares, axis=0)))


def make_adamw(network: keras.Model, cfg: Any, total_updates: int) -> keras.optimizers.Optimizer:
    """AdamW for a network's `FlatWeights`, with the configured schedule.

    Weights with fewer than two axes, biases and the scales of normalizations, do not decay.
    """
    weights = network.trainable_variables
    sizes = [(math.prod(weight.shape), len(weight.shape) > 1) for weight in weights]
    warmup = min(round(cfg.warmup_ratio * total_updates), total_updates - 1)
    rate: Any = WarmupDecay(cfg.learning_rate, total_updates, warmup, cfg.schedule)
    adamw = AdamW(sizes, cfg.weight_decay, learning_rate=rate, epsilon=cfg.adam_epsilon)
    if network.dtype_policy.name != "mixed_float16":
        return adamw
    from kytolly.policy.loss_scale import LossScale

    return LossScale(adamw)
