"""What every trainer offers beside Adam: warm-up, decay of the learning rate, decay of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from kytolly.policy.adam import Adam


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


class DecayingAdam(Adam):
    """Adam for a vector of all weights, with a warm-up and decoupled decay of some of them.

    An update first removes `rate * weight_decay` of each number that the mask names, then makes
    Adam's step, which knows nothing of the decay.

    Args:
        rate: A number, which can be set later, or a schedule.
        mask: Function without arguments that gives [W], 1 where a number decays and 0 elsewhere.
        weight_decay: Share of a number that an update removes, times the rate.
        warmup_updates: Updates over which a rate that is a number rises; a schedule has its own.
        epsilon: Constant in the denominator.

    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", arXiv:1711.05101,
    algorithm 2.
    """

    def __init__(
        self, rate: Any, mask: Any, weight_decay: float, warmup_updates: int, epsilon: float
    ):
        super().__init__(rate, epsilon=epsilon, weight_decay=weight_decay or None)
        self._mask, self._warmup_updates = mask, warmup_updates

    def _get_current_learning_rate(self) -> Any:
        rate: Any = super()._get_current_learning_rate()
        if not self._warmup_updates:
            return rate
        return tf.convert_to_tensor(rate) * warmup_share(self.iterations, self._warmup_updates)

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        if self.weight_decay is not None:
            (variable,) = variables
            share = tf.cast(self.learning_rate, tf.float32) * self.weight_decay
            variable.assign(variable - share * self._mask() * variable)


def warmup_share(step: Any, updates: int) -> tf.Tensor:
    """[] share of the full learning rate at update `step`, counted from 0: 1 / `updates` first.

    The first update is not wasted on a rate of 0. Source of a linear warm-up: Goyal et al. 2017,
    arXiv:1706.02677, section 2.2.
    """
    return tf.minimum((tf.cast(step, tf.float32) + 1.0) / updates, 1.0)


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
) -> Adam:
    """Adam for the vector of a network's weights (`policy.weights.FlatWeights`).

    Args:
        rate: A number, or what `make_schedule` gives.
        weights: The trainable weights of the network, in the order of the vector.
        weight_decay: As for `DecayingAdam`; 0 for none.
        warmup_updates: Only for a rate that is set while training.
        epsilon: Constant in the denominator.
    """
    if not weight_decay and not warmup_updates:
        return Adam(rate, epsilon=epsilon)
    return DecayingAdam(rate, lambda: decay_mask(weights), weight_decay, warmup_updates, epsilon)


def configured_adam(cfg: Any, network: keras.Model) -> Adam:
    """Adam with the training aids of an agent's config.

    A rate that does not fall by updates is a variable, and the warm-up is the optimizer's.
    """
    planned = max(1, int(cfg.total_env_steps * cfg.updates_per_env_step))
    rate, warmup = cfg.learning_rate, math.ceil(cfg.warmup_ratio * planned)
    planned_fall, final = cfg.learning_rate_decay_updates, cfg.learning_rate_final
    if planned_fall is not None and final is not None:
        rate, warmup = make_schedule(rate, final, planned_fall, cfg.warmup_ratio), 0
    weights = network.trainable_variables
    return make_adam(rate, weights, cfg.weight_decay, warmup, cfg.adam_epsilon)
