"""Adam that waits until it knows the size of gradients."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from kytolly.policy.decaying_adam import DecayingAdam

LEAST_LENGTH = 5.0  # steps of the average of squares; optax and PyTorch have 5, the paper 4


class RAdam(DecayingAdam):
    """Rectified Adam: plain momentum at first, and Adam's step by the share that is reliable.

    Its arguments are those of `DecayingAdam`; the learning rate does not need a warm-up.

    Source: Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond",
    arXiv:1908.03265, algorithm 2.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
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


def rectification(step: tf.Tensor, beta_2: float) -> tf.Tensor:
    """[] share of Adam's step at `step`, counted from 1; 0 where the average is too short.

    The average of squares has the variance of one over `length` equal weights; few of them make
    its inverse root vary without bound.

    Source: Liu et al. 2020, arXiv:1908.03265, section 4.2.
    """
    longest = 2.0 / (1.0 - beta_2) - 1.0
    total = weight_sum(step, beta_2)
    length = longest - 2.0 * step * (1.0 - total) / total
    known = tf.maximum(length, LEAST_LENGTH)
    share = (known - 4.0) * (known - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * known)
    return tf.where(length >= LEAST_LENGTH, tf.sqrt(share), 0.0)


def weight_sum(step: tf.Tensor, beta: float) -> tf.Tensor:
    """[] 1 - beta**step: the weights of all gradients so far in a running average.

    The difference itself would have lost three of seven digits at the first steps.
    """
    return -tf.math.expm1(step * math.log(beta))
