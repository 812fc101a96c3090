"""What every trainer offers beside Adam: warm-up, decay of the learning rate, decay of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from kytolly.policy.adam import Adam
from kytolly.policy.decaying_adam import DecayingAdam, warmup_share


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly over the first updates and then follows another one.

    Args:
        rate: A number, or a schedule whose update 0 is the first one after the warm-up.
        updates: Of the warm-up, at least 1.
    """

    def __init__(self, rate: Any, updates: int):
        self.rate, self.updates = rate, updates

    def __call__(self, step: Any) -> tf.Tensor:
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
) -> Any:
    """The learning rate of each update: a number where it never changes, else a Keras schedule.

    Args:
        learning_rate: After the warm-up.
        final: After all updates; None: `learning_rate`.
        updates: Planned for the run.
        warmup_ratio: Share of them in which the rate rises linearly.
        shape: How it falls after the warm-up.
    """
    warmup = math.ceil(warmup_ratio * updates)
    rate: Any = learning_rate
    if final is not None:
        rest = max(updates - warmup, 1)
        schedules = keras.optimizers.schedules
        if shape == "cosine":
            rate = schedules.CosineDecay(learning_rate, rest, alpha=final / learning_rate)
        else:
            rate = schedules.PolynomialDecay(learning_rate, rest, final)
    return WarmUp(rate, warmup) if warmup else rate


def decays(weight: Any) -> bool:
    """Whether weight decay applies to a Keras weight: to matrices, not to biases and scales.

    Keras's attention has biases of two dimensions, so the name counts as well.
    """
    return len(weight.shape) >= 2 and "bias" not in weight.name


def decay_mask(weights: Sequence[Any]) -> tf.Tensor:
    """[W] 1 for the numbers of the weights that decay, 0 for the others, in their order.

    Made where it is called, so that a program holds a few fills and not a constant of that size.
    """
    parts = [tf.fill([math.prod(w.shape)], 1.0 if decays(w) else 0.0) for w in weights]
    return tf.concat(parts, axis=0)


def make_adam(
    rate: Any,
    weights: Sequence[Any],
    weight_decay: float = 0.0,
    warmup_updates: int = 0,
    epsilon: float = 1e-7,
    kind: type[DecayingAdam] | None = None,
) -> Adam:
    """Adam or RAdam for the vector of a network's weights (`policy.weights.FlatWeights`).

    Args:
        rate: A number, or what `make_schedule` gives.
        weights: The trainable weights of the network, in the order of the vector.
        weight_decay: As for `DecayingAdam`; 0 for none.
        warmup_updates: Only for a rate that is set while training.
        epsilon: Constant in the denominator.
        kind: Another class than Adam's, such as `policy.radam.RAdam`.
    """
    arguments = rate, lambda: decay_mask(weights), weight_decay, warmup_updates, epsilon
    if kind is not None:
        return kind(*arguments)
    if not weight_decay and not warmup_updates:
        return Adam(rate, epsilon=epsilon)
    return DecayingAdam(*arguments)


def configured_adam(cfg: Any, network: keras.Model, kind: type[DecayingAdam] | None = None) -> Adam:
    """Adam or RAdam with the training aids of an agent's config.

    A rate that does not fall by updates is a variable, and the warm-up is the optimizer's.
    """
    planned = max(1, int(cfg.total_env_steps * cfg.updates_per_env_step))
    rate, warmup = cfg.learning_rate, math.ceil(cfg.warmup_ratio * planned)
    planned_fall, final = cfg.learning_rate_decay_updates, cfg.learning_rate_final
    if planned_fall is not None and final is not None:
        rate, warmup = make_schedule(rate, final, planned_fall, cfg.warmup_ratio), 0
    weights = network.trainable_variables
    decay, epsilon = cfg.weight_decay, cfg.adam_epsilon
    return make_adam(rate, weights, decay, warmup, epsilon, kind)
