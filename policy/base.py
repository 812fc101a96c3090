"""What every learning rule returns and offers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from kytolly.policy.batch import Transition


class FitResult(NamedTuple):
    """Figures of one update.

    Attributes:
        loss: [] weighted mean loss.
        td_error: [B] target minus estimate, in reward units.
        q_mean: [] mean estimate at the actions taken, in reward units.
        grad_norm: [] global norm of the gradients before clipping.
    """

    loss: tf.Tensor
    td_error: tf.Tensor
    q_mean: tf.Tensor
    grad_norm: tf.Tensor

    @property
    def figures(self) -> tf.Tensor:
        """[4] loss, mean absolute TD error, mean estimate, gradient norm."""
        size = tf.reduce_mean(tf.abs(self.td_error))
        return tf.stack([self.loss, size, self.q_mean, self.grad_norm])


class Policy(Protocol):
    """A learning rule: a function of a batch that never sees an environment or a buffer."""

    updates: tf.Variable

    def gradients(self, batch: Transition, weight: tf.Tensor) -> tuple[list, FitResult]:
        """Gradients of the loss for every trainable weight, and the figures of the update."""
        ...

    def apply(self, grads: list[Any]) -> None:
        """One optimiser step with these gradients, then the target network's due change."""
        ...

    def update(self, batch: Transition, weight: tf.Tensor) -> FitResult:
        """`gradients` and `apply`, uncompiled: for callers that are compiled themselves."""
        ...
