"""Adam with a warm-up and weight decay, RAdam, and loss scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from kytolly.policy.adam import Adam, Rate, WarmUp, make_schedule, warmup_share

if TYPE_CHECKING:
    from kytolly.config.supervised import SupervisedConfig

MIN_LENGTH = 5.0  # steps of the average of squares; optax and PyTorch have 5, the paper 4
LOSS_SCALES = (2.0**-24, 2.0**40)  # beyond them float32 overflows as well, or nothing is left


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
        self,
        rate: Rate,
        mask: Callable[[], tf.Tensor],
        weight_decay: float,
        warmup_updates: int,
        epsilon: float,
    ):
        super().__init__(rate, epsilon=epsilon, weight_decay=weight_decay or None)
        self._mask, self._warmup_updates = mask, warmup_updates

    def _get_current_learning_rate(self) -> Any:
        rate: Any = super()._get_current_learning_rate()
        if not self._warmup_updates:
            return rate
        return tf.convert_to_tensor(rate) * warmup_share(self.iterations, self._warmup_updates)

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        if self.weight_decay is not None:
            (variable,) = variables
            share = tf.cast(self.learning_rate, tf.float32) * self.weight_decay
            variable.assign(variable - share * self._mask() * variable)


class RAdam(DecayingAdam):
    """Rectified Adam: plain momentum at first, and Adam's step by the share that is reliable.

    Its arguments are those of `DecayingAdam`; the learning rate does not need a warm-up.

    Source: Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond",
    arXiv:1908.03265, algorithm 2.
    """

    def update_step(
        self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor
    ) -> None:
        """One step of a variable."""
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        self.assign_add(momentum, (gradient - momentum) * (1.0 - self.beta_1))
        self.assign_add(velocity, (tf.square(gradient) - velocity) * (1.0 - self.beta_2))
        updates: Any = self.iterations
        step = tf.cast(updates + 1, tf.float32)
        share = rectification(step, self.beta_2)
        root = tf.sqrt(velocity / weight_sum(step, self.beta_2)) + self.epsilon
        rate = tf.cast(learning_rate, tf.float32) / weight_sum(step, self.beta_1)
        scale = tf.where(share > 0.0, share / root, 1.0)
        self.assign_sub(variable, rate * momentum * scale)


class LossScale(keras.optimizers.LossScaleOptimizer):
    """Keras's loss scaling; a loss of 0 never overflows, and would double its scale for ever."""

    def apply(
        self, grads: Sequence[tf.Tensor], trainable_variables: Sequence[Any] | None = None
    ) -> None:
        """One step of the optimizer; where the gradients overflow, none."""
        super().apply(grads, trainable_variables)
        self.dynamic_scale.assign(tf.clip_by_value(self.dynamic_scale, *LOSS_SCALES))


def rectification(step: tf.Tensor, beta_2: float) -> tf.Tensor:
    """[] share of Adam's step at `step`, counted from 1; 0 where the average is too short.

    The average of squares has the variance of one over `length` equal weights; few of them make
    its inverse root vary without bound.

    Source: Liu et al. 2020, arXiv:1908.03265, section 4.2.
    """
    longest = 2.0 / (1.0 - beta_2) - 1.0
    total = weight_sum(step, beta_2)
    length = longest - 2.0 * step * (1.0 - total) / total
    known = tf.maximum(length, MIN_LENGTH)
    share = (known - 4.0) * (known - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * known)
    return tf.where(length >= MIN_LENGTH, tf.sqrt(share), 0.0)


def weight_sum(step: tf.Tensor, beta: float) -> tf.Tensor:
    """[] 1 - beta**step: the weights of all gradients so far in a running average.

    The difference itself would have lost three of seven digits at the first steps.
    """
    return -tf.math.expm1(step * math.log(beta))


def decays(weight: keras.Variable) -> bool:
    """True where weight decay applies to a Keras weight: to matrices, not to biases and scales.

    Keras's attention has biases of two dimensions, so the name counts as well.
    """
    return len(weight.shape) >= 2 and "bias" not in weight.name


def decay_mask(weights: Sequence[keras.Variable]) -> tf.Tensor:
    """[W] 1 for the numbers of the weights that decay, 0 for the others, in their order.

    Made where it is called, so that a program holds a few fills and not a constant of that size.
    """
    parts = [tf.fill([math.prod(w.shape)], 1.0 if decays(w) else 0.0) for w in weights]
    return tf.concat(parts, axis=0)


def make_adam(
    rate: Rate,
    weights: Sequence[keras.Variable],
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
        kind: Another class than Adam's, such as `RAdam`.
    """
    arguments = rate, lambda: decay_mask(weights), weight_decay, warmup_updates, epsilon
    if kind is not None:
        return kind(*arguments)
    if not weight_decay and not warmup_updates:
        return Adam(rate, epsilon=epsilon)
    return DecayingAdam(*arguments)


def make_adamw(
    network: keras.Model, cfg: SupervisedConfig, total_updates: int
) -> keras.optimizers.Optimizer:
    """AdamW for a network's `FlatWeights`, with the configured schedule."""
    final = None if cfg.schedule == "constant" else 0.0
    shape: Any = "cosine" if cfg.schedule == "cosine" else "linear"
    rate = make_schedule(cfg.learning_rate, final, total_updates, cfg.warmup_ratio, shape)
    if not callable(rate):  # as a variable it would be restored, whatever the config says now
        rate = WarmUp(rate, 1)
    weights, epsilon = network.trainable_variables, cfg.adam_epsilon
    adamw = make_adam(rate, weights, cfg.weight_decay, epsilon=epsilon)
    return LossScale(adamw) if network.dtype_policy.name == "mixed_float16" else adamw
