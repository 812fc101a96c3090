"""What learners of distributions of the return share."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.environment.mask import without_mask
from kytolly.policy.base import Loss
from kytolly.policy.batch import Transition
from kytolly.policy.munchausen import MunchausenPolicy


class DistributionalPolicy(MunchausenPolicy):
    """DQN whose network has a distribution of the return for each action.

    Called, the network gives the means [B, A], by which an agent acts. Its method `network_method`
    gives the distributions, from which it learns.
    """

    network_method = ""
    network_settings: tuple[tuple[str, str], ...] = ()  # (its own name, the setting) of each

    def distributions(self, obs: Any, weights: list[tf.Tensor], **options: Any) -> tf.Tensor:
        """What `network_method` gives for [B, *obs]."""
        method = getattr(self.network, self.network_method)
        return self.weights.call(weights, without_mask(obs), method, **options)


def row_loss(batch: Transition, loss: tf.Tensor, target: tf.Tensor, mean: tf.Tensor) -> Loss:
    """The loss of rows, each by its weight; metrics: loss, mean error, mean estimate.

    Args:
        batch: The rows.
        loss: [B] of each.
        target: [B] means of the distributions of the targets.
        mean: [B] means of the estimates' distributions.
    """
    td_error = target - mean
    weight = 1.0 if isinstance(batch.weight, tuple) else batch.weight
    total = tf.reduce_mean(weight * loss)
    metrics = [total, tf.reduce_mean(tf.abs(td_error)), tf.reduce_mean(mean)]
    return Loss(total, td_error, tf.stack(metrics))


def action_outputs(outputs: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """[B, Z] of the action [B] from [B, A, Z]."""
    chosen = tf.expand_dims(tf.one_hot(action, outputs.shape[1]), -1)
    return tf.reduce_sum(outputs * chosen, axis=1)  # a gather's gradient is a scatter: slower


def mixture(outputs: tf.Tensor, probability: tf.Tensor) -> tf.Tensor:
    """[B, Z] mean over actions of [B, A, Z], each by its probability [B, A]."""
    return tf.reduce_sum(outputs * tf.expand_dims(probability, -1), axis=1)
