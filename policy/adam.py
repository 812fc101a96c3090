"""Adam, and learning rates that change with the updates."""

from __future__ import annotations

import math
from typing import Any, Literal

import keras
import tensorflow as tf

Rate = float | keras.optimizers.schedules.LearningRateSchedule


class Adam(keras.optimizers.Adam):
    """Keras's Adam for one device."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        """The gradients as they are.

        TensorFlow's sum over devices is a custom gradient, which its registry keeps for ever in
        every graph, with all variables of the graph: 200 MB for each training in a process.
        """
        return grads_and_vars


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly over the first updates and then follows another one.

    Args:
        rate: A number, or a schedule whose update 0 is the first one after the warm-up.
        updates: Of the warm-up, at least 1.
    """

    def __init__(self, rate: Rate, updates: int):
        self.rate, self.updates = rate, updates

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """[] the learning rate of update `step`, counted from 0."""
        later = tf.maximum(tf.cast(step, tf.int64) - self.updates, 0)
        rate: Any = self.rate(later) if callable(self.rate) else self.rate
        return rate * warmup_share(step, self.updates)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {"rate": self.rate, "updates": self.updates}


def make_schedule(
    learning_rate: float,
    final: float | None,
    updates: int,
    warmup_ratio: float = 0.0,
    shape: Literal["linear", "cosine"] = "linear",
) -> Rate:
    """The learning rate of each update: a number where it never changes, else a Keras schedule.

    Args:
        learning_rate: After the warm-up.
        final: After all updates; None: `learning_rate`.
        updates: Planned for the run.
        warmup_ratio: Share of them in which the rate rises linearly.
        shape: How it falls after the warm-up.
    """
    warmup = math.ceil(warmup_ratio * updates)
    rate: Rate = learning_rate
    if final is not None:
        rest = max(updates - warmup, 1)
        schedules = keras.optimizers.schedules
        if shape == "cosine":
            rate = schedules.CosineDecay(learning_rate, rest, alpha=final / learning_rate)
        else:
            rate = schedules.PolynomialDecay(learning_rate, rest, final)
    return WarmUp(rate, warmup) if warmup else rate


def warmup_share(step: tf.Tensor, updates: int) -> tf.Tensor:
    """[] share of the full learning rate at update `step`, counted from 0: 1 / `updates` first.

    The first update is not wasted on a rate of 0. Source of a linear warm-up: Goyal et al. 2017,
    arXiv:1706.02677, section 2.2.
    """
    return tf.minimum((tf.cast(step, tf.float32) + 1.0) / updates, 1.0)


def inner_optimizer(optimizer: keras.optimizers.Optimizer) -> Any:
    """The optimizer itself, without the loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def follows_schedule(optimizer: keras.optimizers.Optimizer, but: Rate | None = None) -> bool:
    """True where the optimizer's learning rate is a schedule, other than `but`, and no variable."""
    rate = inner_optimizer(optimizer)._learning_rate
    return callable(rate) and rate is not but
