"""Q-learning from rollouts, without a target network and without replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.environment.spec import EnvSpec
from kytolly.policy.base import Loss, Policy
from kytolly.policy.batch import Rollout, merge_time
from kytolly.policy.dqn import ActionValues, DQNPolicy
from kytolly.policy.policy_gradient import lambda_return


class PQNBatch(NamedTuple):
    """Rows of a rollout with what they led to."""

    obs: Any  # [B, *obs] or a dict
    action: Any  # [B] int32
    target: Any  # [B] lambda-return, in reward units
    value: Any  # [B] value of the best action before learning, in reward units


class PQNPolicy(Policy):
    """Action values, learned towards lambda-returns of the rollout that was just collected.

    The network maps [B, *obs] to action values [B, A]. Its layer norms keep it from diverging
    without a target network.

    Source: Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning", arXiv:2407.04811,
    algorithm 1.
    """

    metric_names = ("loss", "td_error", "q_mean", "grad_norm")
    keeps_value = True
    gives_td_error = True

    @classmethod
    def distribution_for(cls, cfg: Any, env_spec: EnvSpec) -> ActionValues:
        """As for DQN."""
        return DQNPolicy.distribution_for(cfg, env_spec)

    def outputs(self, obs: Any, weights: list[tf.Tensor], **options: Any) -> tuple[Any, Any]:
        """Action values [B, A], and [B] the best of each row: the value of the observation."""
        q, _ = super().outputs(obs, weights, **options)
        return q, tf.reduce_max(q, axis=-1)

    def batch(self, rollout: Rollout, values: tf.Tensor, next_values: tf.Tensor) -> PQNBatch:
        """[T * E] rows with lambda-returns.

        Args:
            rollout: Collected with the present weights.
            values: [T, E] values of the best actions at `obs`, in reward units.
            next_values: [T, E] those at `next_obs`, in reward units.
        """
        target = lambda_return(
            rollout.reward, rollout.discount, rollout.last, next_values, self.cfg.td_lambda
        )
        columns = (rollout.obs, rollout.action, target, values)
        return PQNBatch(*map(merge_time, columns))

    def loss(self, batch: PQNBatch, weights: list[tf.Tensor]) -> Loss:
        """Half the squared temporal difference; metrics: loss, mean size, mean estimate."""
        q, _ = self.outputs(batch.obs, weights, training=True)
        taken = tf.one_hot(batch.action, q.shape[-1])
        estimate = tf.reduce_sum(q * taken, axis=-1)  # a gather's gradient is a scatter: slower
        td_error = batch.target - estimate
        loss = 0.5 * tf.reduce_mean(tf.square(td_error))
        size = tf.reduce_mean(tf.abs(td_error))
        return Loss(loss, td_error, tf.stack([loss, size, tf.reduce_mean(estimate)]))
