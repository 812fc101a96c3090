"""Q-learning from rollouts, without a target network and without replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.config.pqn import PQNConfig
from kytolly.environment.spec import EnvSpec
from kytolly.policy.action_values import ActionValues, action_values_for, take_action
from kytolly.policy.base import Loss, Policy
from kytolly.policy.batch import Obs, Rollout, merge_time
from kytolly.policy.few_columns import means, row_max
from kytolly.policy.hyper import Hyper
from kytolly.policy.returns import lambda_return
from kytolly.policy.weights import Weights


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
    takes_masks = True

    @classmethod
    def distribution_for(cls, cfg: PQNConfig, env_spec: EnvSpec) -> ActionValues:
        """As for DQN."""
        return action_values_for(cfg.algorithm, env_spec)

    def step(
        self, obs: Obs, weights: Weights, noise: None = None, **options: bool | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Action values [B, A], [B] the best of each row: the observation's value, and memory."""
        q, _, memory = super().step(obs, weights, noise, **options)
        return q, row_max(q), memory

    def batch(self, rollout: Rollout, values: tf.Tensor, next_values: tf.Tensor) -> PQNBatch:
        """[T * E] rows with lambda-returns.

        Args:
            rollout: Collected with the present weights.
            values: [T, E] values of the best actions at `obs`, in reward units.
            next_values: [T, E] those at `next_obs`, in reward units.
        """
        target = lambda_return(
            rollout.reward, rollout.discount, rollout.last, next_values, self.hyper.td_lambda
        )
        columns = (rollout.obs, rollout.action, target, values)
        return PQNBatch(*map(merge_time, columns))

    def loss(self, batch: PQNBatch, weights: Weights, hyper: Hyper) -> Loss:
        """Half the squared temporal difference; metrics: loss, mean size, mean estimate."""
        q, _ = self.outputs(batch.obs, weights, training=True)
        estimate = take_action(q, batch.action)
        td_error = batch.target - estimate
        error, size, estimate = means(tf.square(td_error), tf.abs(td_error), estimate)
        return Loss(0.5 * error, td_error, tf.stack([0.5 * error, size, estimate]))
