"""C51: the probabilities of evenly spaced returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.policy.base import Loss
from kytolly.policy.batch import Transition
from kytolly.policy.distributional import DistributionalPolicy, action_outputs, mixture, row_loss
from kytolly.policy.dqn import ESTIMATE
from kytolly.policy.targets import categorical_projection

SMALLEST = 1e-30  # probability whose logarithm is taken


class C51Policy(DistributionalPolicy):
    """DQN of distributions on `num_atoms` returns from `value_min` to `value_max`.

    With prioritized replay `td_error` is the divergence of the estimate from the target, in nats.

    Source: Bellemare, Dabney & Munos 2017, arXiv:1707.06887, algorithm 1; for the priorities
    Hessel et al. 2018, arXiv:1710.02298, section "The Integrated Agent".
    """

    metric_names = ("loss", "td_error", "q_mean", "clipped_targets", "grad_norm")
    network_method = "atom_logits"
    network_settings = (
        ("num_outputs", "num_atoms"),
        ("value_min", "value_min"),
        ("value_max", "value_max"),
    )

    def __init__(self, network: Any, distribution: Any, optimizer: Any, cfg: Any):
        super().__init__(network, distribution, optimizer, cfg)
        bounds = cfg.value_min, cfg.value_max
        self.atoms = np.linspace(*bounds, cfg.num_atoms, dtype=np.float32)

    def target_distribution(
        self, batch: Transition, weights: list[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, Z] probabilities of the atoms, and [B] the share of them that was clipped.

        Each return is moved by the reward and the discount; the atoms stay.
        """
        logits = self.distributions(batch.next_obs, self.target_weights(batch))
        probability = tf.nn.softmax(logits)
        next_q = tf.reduce_sum(probability * self.atoms, axis=-1)
        reward, by_action, entropy = self.continuation(batch, weights, next_q)
        if self.cfg.munchausen:
            next_probability = mixture(probability, by_action)
        else:
            next_probability = tf.nn.softmax(mixture(logits, by_action))  # of one action: cheaper
        next_return = self.atoms + entropy[:, tf.newaxis]
        moved = reward[:, tf.newaxis] + batch.discount[:, tf.newaxis] * next_return
        projected = categorical_projection(moved, next_probability, tf.constant(self.atoms))
        return tf.nest.map_structure(tf.stop_gradient, projected)

    def loss(self, batch: Transition, weights: list[tf.Tensor]) -> Loss:
        """Cross-entropy of the targets; metrics: loss, mean error, mean, clipped share."""
        target, clipped = self.target_distribution(batch, weights)
        noisy = self.noisy(weights, batch, ESTIMATE)
        logits = action_outputs(self.distributions(batch.obs, noisy, training=True), batch.action)
        log_prob = tf.nn.log_softmax(logits)
        cross_entropy = -tf.reduce_sum(target * log_prob, axis=-1)
        means = (tf.reduce_sum(p * self.atoms, axis=-1) for p in (target, tf.exp(log_prob)))
        loss = row_loss(batch, cross_entropy, *means)
        if self.cfg.prioritized:
            log_target = tf.math.log(tf.maximum(target, SMALLEST))
            divergence = cross_entropy + tf.reduce_sum(target * log_target, axis=-1)
            loss = loss._replace(td_error=divergence)
        share = tf.reduce_mean(clipped)[tf.newaxis]
        return loss._replace(metrics=tf.concat([loss.metrics, share], axis=0))
