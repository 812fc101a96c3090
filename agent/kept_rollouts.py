"""The newest rollouts of an on-policy learner, whose rows it learns from again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from kytolly.environment.spec import EnvSpec
from kytolly.environment.state_variable import state_variable
from kytolly.policy.batch import Rollout, map_columns, merge_time, rollout_spec

if TYPE_CHECKING:
    from kytolly.agent.reward_scale import RewardScale

LARGEST_WEIGHT = 2.0


class KeptRollouts(tf.Module):
    """Keeps rollouts beside each other, the newest first, as if more environments had played.

    Rows of older policies are learned from as if the present one had acted, each with the weight of
    what it does now: the policy near which updates stay is the present one, not that which acted.

    Args:
        count: Rollouts, K.
        steps: Steps of each environment in one, T.
        num_envs: Environments, E.
        env_spec: What they show and take.

    Source: Queeney et al. 2021, "Generalized Proximal Policy Optimization with Sample Reuse",
    arXiv:2111.00072; the weight, and updates near the present policy, are the decoupled objective
    of Hilton et al. 2022, "Batch size-invariance for policy optimization", arXiv:2110.00641.
    """

    def __init__(self, count: int, steps: int, num_envs: int, env_spec: EnvSpec):
        super().__init__(name="kept_rollouts")
        self.count, self.num_envs, self.width = count, num_envs, count * num_envs

        def column(spec: tf.TensorSpec) -> Any:
            return state_variable(tf.zeros([steps, self.width, *spec.shape[1:]], spec.dtype))

        self.columns = map_columns(column, rollout_spec(env_spec, num_envs))
        self.log_prob = tf.Variable(tf.zeros([steps, self.width]), trainable=False)
        self.added = tf.Variable(0, dtype=tf.int64, trainable=False, name="added")

    def add(self, rollout: Rollout, reward_scale: RewardScale | None = None) -> Rollout:
        """Keep a rollout [T, E] in place of the oldest; returns all of them, [T, K * E].

        With a scale, all rewards are in its present units.
        """

        def with_older(column: tf.Tensor, kept: Any) -> tf.Tensor:
            older = tf.convert_to_tensor(kept)[:, : -self.num_envs]
            joined = tf.concat([tf.cast(column, older.dtype), older], axis=1)
            kept.assign(joined)
            return joined

        joined = Rollout(*tf.nest.map_structure(with_older, rollout[:6], self.columns[:6]))
        self.added.assign_add(1)
        if reward_scale is not None:
            reward_scale.divide(rollout)  # counts its returns
            joined = joined._replace(reward=reward_scale.units(joined.reward))
        return joined

    def weighted(self, rows: Any, log_prob: tf.Tensor) -> tuple[Any, Any]:
        """[T * K * E] rows with advantages times their weights, and those of the newest rollout.

        Args:
            rows: With advantages, values and targets.
            log_prob: [T, K * E] of the actions, by the policy that collected the newest rollout.
        """
        weight = merge_time(self.weights(log_prob))
        value, target = (
            tf.reshape(column, log_prob.shape)[:, : self.num_envs]
            for column in (rows.value, rows.target)
        )
        newest = rows._replace(value=value, target=target)
        return rows._replace(advantage=weight * rows.advantage), newest

    def weights(self, log_prob: tf.Tensor) -> tf.Tensor:
        """[T, K * E] how much more probable each action is now than when it was taken."""
        newest, older = log_prob[:, : self.num_envs], self.log_prob[:, : -self.num_envs]
        taken = tf.concat([newest, older], axis=1)
        self.log_prob.assign(taken)
        return tf.minimum(tf.exp(log_prob - taken), LARGEST_WEIGHT)

    def filled(self, slots: tf.Tensor) -> tf.Tensor:
        """[B] slots of rows; those of rollouts that are still to come are others' instead."""
        rollouts = tf.cast(tf.minimum(self.added, self.count), tf.int32)
        column = slots % self.width
        return slots - column + column % (rollouts * self.num_envs)
