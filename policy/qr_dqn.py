"""QR-DQN: quantiles of the return at fixed levels."""

from __future__ import annotations

import tensorflow as tf

from kytolly.model.distributional_mlp import middles
from kytolly.policy.base import Loss
from kytolly.policy.batch import Transition
from kytolly.policy.distributional import DistributionalPolicy, action_outputs, mixture, row_loss
from kytolly.policy.dqn import ESTIMATE
from kytolly.policy.targets import quantile_huber


class QRDQNPolicy(DistributionalPolicy):
    """DQN of quantiles in the middles of `num_quantiles` equal parts of [0, 1].

    Source: Dabney et al. 2018, arXiv:1710.10044, algorithm 1.
    """

    network_method = "middle_quantiles"
    network_settings = (("num_outputs", "num_quantiles"),)

    def estimate(self, batch: Transition, weights: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, A, N] quantiles at `obs` with the weights that learn, and their levels."""
        levels = middles(self.cfg.num_quantiles)
        noisy = self.noisy(weights, batch, ESTIMATE)
        return self.distributions(batch.obs, noisy, training=True), tf.constant(levels)

    def next_quantiles(self, batch: Transition) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, A, M] quantiles of the target network at `next_obs`, and [B, A] their means."""
        quantiles = self.distributions(batch.next_obs, self.target_weights(batch))
        return quantiles, tf.reduce_mean(quantiles, axis=-1)

    def bootstrap(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B, M] targets: samples of the return."""
        quantiles, next_q = self.next_quantiles(batch)
        reward, by_action, entropy = self.continuation(batch, weights, next_q)
        next_return = mixture(quantiles, by_action) + entropy[:, tf.newaxis]
        discounted = batch.discount[:, tf.newaxis] * next_return
        return tf.stop_gradient(reward[:, tf.newaxis] + discounted)

    def loss(self, batch: Transition, weights: list[tf.Tensor]) -> Loss:
        """Quantile Huber loss; metrics: loss, mean error, mean estimate."""
        target = self.bootstrap(batch, weights)
        quantiles, levels = self.estimate(batch, weights)
        found = action_outputs(quantiles, batch.action)
        loss = quantile_huber(found, target, levels, self.cfg.huber_delta)
        means = (tf.reduce_mean(part, axis=-1) for part in (target, found))
        return row_loss(batch, loss, *means)
