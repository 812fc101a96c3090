"""Optimizers that a user gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import keras
import tensorflow as tf

from kytolly.config.run import RunConfig
from kytolly.policy.adam import Rate, inner_optimizer
from kytolly.policy.adamw import LossScale

Given = keras.optimizers.Optimizer | Callable[..., keras.optimizers.Optimizer]  # or what makes one
# They look at each weight by itself, and get all weights in one vector.
BY_WEIGHT = {"Adafactor", "LAMB", "Lamb", "Muon"}


class ScaledRate(keras.optimizers.schedules.LearningRateSchedule):
    """A share of another schedule.

    Args:
        rate: The schedule.
        factor: What it is multiplied by.
    """

    def __init__(self, rate: Callable[..., tf.Tensor], factor: float):
        self.rate, self.factor = rate, factor

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """[] the learning rate of update `step`, counted from 0."""
        return self.factor * self.rate(step)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {"rate": self.rate, "factor": self.factor}


def make_custom_optimizer(
    given: Given, rate: Rate, factor: float, scale_loss: bool
) -> keras.optimizers.Optimizer:
    """A new optimizer like the one that is given, or what a function makes of the learning rate.

    Args:
        given: Keras optimizer, of which a copy without state is made, or a function.
        rate: The function's argument.
        factor: What the rate of an optimizer, which is no function, is multiplied by.
        scale_loss: The network computes in float16.

    Raises:
        TypeError: It is neither, or of an old kind.
        ValueError: It cannot learn here; the message says why.
    """
    optimizer = new_optimizer(given, rate, factor)
    check_step(new_optimizer(given, rate, factor))
    for each in (cast(Any, optimizer), inner_optimizer(optimizer)):
        each._all_reduce_sum_gradients = lambda pairs: pairs  # as `policy.adam.Adam` says
    if not scale_loss or isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer
    return LossScale(optimizer)


def new_optimizer(given: Given, rate: Rate, factor: float) -> keras.optimizers.Optimizer:
    """A new optimizer without state."""
    if isinstance(given, keras.optimizers.Optimizer):
        optimizer = copy_of(given)
        if factor != 1.0:
            inner = inner_optimizer(optimizer)
            rate = inner._learning_rate
            inner.learning_rate = (
                ScaledRate(rate, factor) if callable(rate) else factor * float(inner.learning_rate)
            )
    elif callable(given):
        optimizer = given(rate)
    else:
        optimizer = given
    kinds = {kind.__name__ for kind in type(optimizer).__mro__}
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"optimizer is {type(optimizer).__module__}.{type(optimizer).__name__}, expected an "
            "optimizer of Keras 3, such as keras.optimizers.SGD(0.01), or a function of the "
            "learning rate that makes one. Optimizers of TensorFlow 1 and of Keras 2 do not work."
        )
    if kinds & BY_WEIGHT:
        raise ValueError(
            f"optimizer is {type(optimizer).__name__}, which scales the step of each weight by "
            "itself, expected one that treats every number alike, as Adam and SGD do: all weights "
            "are one vector here. Choose another."
        )
    return optimizer


def copy_of(given: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """An optimizer with the same settings and no state."""
    name = type(given).__name__
    if getattr(given, "_exclude_from_weight_decay", None) or getattr(
        given, "_exclude_from_weight_decay_pattern", None
    ):
        raise ValueError(
            f"the optimizer {name} excludes weights from weight decay by name, expected none: all "
            "weights are one vector here. Leave the optimizer out, and set weight_decay, which "
            "spares biases."
        )
    inner = inner_optimizer(given)
    try:
        config = given.get_config()
        if inner is given and callable(given._learning_rate):
            config["learning_rate"] = given._learning_rate
        return type(given).from_config(config)
    except Exception as error:
        raise ValueError(
            f"the optimizer {name} cannot be made anew from its get_config() "
            f"({type(error).__name__}: {' '.join(str(error).split()):.160}), which a run needs. "
            "Give it a get_config() with the arguments of its constructor, or give a function of "
            "the learning rate that makes it."
        ) from error


def learning_rate_of(cfg: RunConfig) -> Rate:
    """The argument of a function that makes an optimizer: a number, or a schedule of updates."""
    rate, updates = cfg.learning_rate, cfg.learning_rate_decay_updates
    if cfg.learning_rate_final is None or updates is None:
        return rate
    return keras.optimizers.schedules.PolynomialDecay(rate, updates, cfg.learning_rate_final)


def check_step(optimizer: keras.optimizers.Optimizer) -> None:
    """Refuse an optimizer whose step cannot be part of a compiled program."""
    variable = keras.Variable(tf.zeros([2]))

    def step(gradient: tf.Tensor) -> None:
        optimizer.apply([gradient], [variable])

    try:
        optimizer.build([variable])
        spec = tf.TensorSpec([2])
        tf.function(step, autograph=False).get_concrete_function(spec)
    except Exception as error:
        raise ValueError(
            f"a step of the optimizer {type(optimizer).__name__} cannot be compiled "
            f"({type(error).__name__}: {' '.join(str(error).split()):.200}), expected tensor code. "
            "Write its update_step with keras.ops, without numpy() and without `if` on tensors."
        ) from error
