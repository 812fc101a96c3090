"""Learning from known one-step gains, before reinforcement learning begins."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from kytolly.policy import losses
from kytolly.policy.clipping import clipped_by_global_norm
from kytolly.policy.distributions import MASKED_LOGIT
from kytolly.policy.ppo import without_mask


class GainPolicy(tf.Module):
    """Fits a network [B, *obs] -> (logits [B, A], value [B]) to the gain of every action.

    Args:
        network: Built Keras model.
        optimizer: Keras optimiser.
        temperature: Gain, in reward units, that makes an action e times as likely.
        value_coef: Weight of the value loss.
        max_grad_norm: Gradient clipping, over all weights together.
        xla: Compile with XLA.
    """

    def __init__(
        self,
        network: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        temperature: float,
        value_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        xla: bool = True,
    ):
        super().__init__(name="gain_policy")
        self.network, self.optimizer = network, optimizer
        self.temperature, self.value_coef = temperature, value_coef
        self.max_grad_norm = max_grad_norm
        self.optimizer.build(network.trainable_variables)
        self.fit_step = tf.function(self.update, jit_compile=xla, autograph=False)

    def update(self, obs: Any, mask: tf.Tensor, gain: tf.Tensor) -> tf.Tensor:
        """One update; [3] loss, cross-entropy, and the mean gain that the policy expects.

        Args:
            obs: [B, *obs] or a dict of them.
            mask: [B, A] bool, which actions are allowed.
            gain: [B, A] reward of each action.
        """
        weights = self.network.trainable_variables
        with tf.GradientTape() as tape:
            logits, value = self.network(without_mask(obs), training=True)
            logits = tf.where(mask, logits, MASKED_LOGIT)
            cross_entropy = losses.soft_cross_entropy(
                logits, tf.where(mask, gain / self.temperature, MASKED_LOGIT)
            )
            best = tf.reduce_max(tf.where(mask, gain, 0.0), axis=-1)
            value_loss = tf.reduce_mean(tf.square(tf.reshape(value, [-1]) - best))
            loss = cross_entropy + self.value_coef * value_loss
        grads, _ = clipped_by_global_norm(tape.gradient(loss, weights), self.max_grad_norm)
        self.optimizer.apply(grads, weights)
        expected = tf.reduce_mean(tf.reduce_sum(tf.nn.softmax(logits) * gain, axis=-1))
        return tf.stack([loss, cross_entropy, expected])
