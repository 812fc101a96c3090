"""The memory of an on-policy learner: one rollout, and its rows in a random order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kytolly.agent.shuffle import keys_per_order, random_order
from kytolly.environment.spec import EnvSpec
from kytolly.model.normalization import merge_statistics
from kytolly.policy.batch import Rollout, merge_time
from kytolly.policy.policy_gradient import explained_variance


class RolloutBuffer(tf.Module):
    """Makes rows with advantages of a rollout, and hands them out once in each epoch.

    It remembers nothing between two iterations but the scale of rewards.

    Args:
        rows_per_update: Rows of an update; divides those of a rollout.
        updates_per_epoch: Updates in one pass over a rollout.
        epochs: Passes.
        cut_at_most_once: No environment is truncated twice within a rollout, which saves work.
        reward_scale: Divides rewards, if they are normalized.
    """

    metric_names = ("explained_variance",)
    allows_lag = False  # a rollout must come from the policy that learns

    def __init__(
        self,
        rows_per_update: int,
        updates_per_epoch: int,
        epochs: int,
        cut_at_most_once: bool = False,
        reward_scale: RewardScale | None = None,
    ):
        super().__init__(name="rollout_buffer")
        self.rows_per_update, self.updates_per_epoch = rows_per_update, updates_per_epoch
        self.epochs, self.updates = epochs, epochs * updates_per_epoch
        self.cut_at_most_once, self.reward_scale = cut_at_most_once, reward_scale

    @classmethod
    def for_config(cls, cfg: Any, env_spec: EnvSpec, available_bytes: int | None) -> RolloutBuffer:
        """The buffer that a configuration asks for."""
        limit, scale = env_spec.max_episode_steps, None
        if cfg.normalize_rewards:
            scale = RewardScale(cfg.num_envs, cfg.gamma, cfg.normalized_clip)
        return cls(
            cfg.rows_per_update,
            cfg.updates_per_epoch,
            cfg.epochs,
            env_spec.truncates_at_limit_only and (limit is None or limit >= cfg.rollout_steps),
            scale,
        )

    @property
    def draws(self) -> int:
        """uint32 words that the updates of an iteration take."""
        return self.epochs * keys_per_order()

    def open(self, rollout: Rollout, policy: Any) -> Any:
        """[T * E] rows to learn from, made with the policy's present estimates.

        Args:
            rollout: [T, E] env steps, collected with the present weights.
            policy: Gives values, and makes rows of them.
        """
        if self.reward_scale is not None:
            rollout = rollout._replace(reward=self.reward_scale.divide(rollout))
        weights = policy.current_weights()
        params, value = policy.outputs(merge_time(rollout.obs), weights)
        if isinstance(rollout.log_prob, tuple):
            log_prob = policy.distribution.log_prob(params, merge_time(rollout.action))
            rollout = rollout._replace(log_prob=tf.reshape(log_prob, rollout.reward.shape))
        values = tf.reshape(value, rollout.reward.shape)
        next_values = self._next_values(
            rollout, values, lambda obs: policy.outputs(obs, weights)[1]
        )
        return policy.batch(rollout, values, next_values)

    def batch(self, opened: Any, index: int | tf.Tensor, bits: tf.Tensor) -> Any:
        """The rows of update `index`: every row is in exactly one update of an epoch.

        Args:
            opened: All rows, [N, ...].
            index: [] int32 update.
            bits: [draws] uint32 words that order the rows.
        """
        epoch, part = index // self.updates_per_epoch, index % self.updates_per_epoch
        keys = tf.gather(tf.reshape(bits, [self.epochs, -1]), epoch)
        places = part * self.rows_per_update + tf.range(self.rows_per_update)
        slots = random_order(places, tf.nest.flatten(opened)[-1].shape[0], keys)
        return tf.nest.map_structure(lambda column: tf.gather(column, slots), opened)

    def close(self, batch: Any, td_error: Any) -> None:
        """Nothing: every row is used as often."""

    def latest(self, opened: Any) -> tf.Tensor:
        """[1] share of the targets' variance that the values explained before learning."""
        return explained_variance(opened.value, opened.target)[tf.newaxis]

    def _next_values(
        self, rollout: Rollout, values: tf.Tensor, evaluate: Callable[[Any], tf.Tensor]
    ) -> tf.Tensor:
        """[T, E] values of what each step led to.

        They are the values of the next rows, but for the last row and where an episode was cut
        off. If no environment can be cut off twice, those are two observations for each.
        """
        if not self.cut_at_most_once:
            return tf.reshape(evaluate(merge_time(rollout.next_obs)), values.shape)
        cut = rollout.last & (rollout.discount > 0.0)
        when = tf.argmax(tf.cast(cut, tf.int32), axis=0, output_type=tf.int32)
        places = tf.stack([when, tf.range(values.shape[1])], axis=-1)

        def cut_then_last(column):
            return tf.concat([tf.gather_nd(column, places), column[-1]], axis=0)

        needed = tf.nest.map_structure(cut_then_last, rollout.next_obs)
        at_cut, at_end = tf.split(evaluate(needed), 2)
        following = tf.concat([values[1:], at_end[tf.newaxis]], axis=0)
        return tf.where(cut, at_cut, following)


class RewardScale(tf.Module):
    """Divides rewards by the running deviation of the discounted return.

    Args:
        num_envs: Environments, `E`.
        gamma: Discount of an env step.
        clip: Largest absolute reward that it returns.

    Source: Engstrom et al. 2020, arXiv:2005.12729, section 3, "reward scaling".
    """

    def __init__(self, num_envs: int, gamma: float, clip: float):
        super().__init__(name="reward_scale")
        self.gamma, self.clip = gamma, clip
        self.discounted = tf.Variable(tf.zeros([num_envs]), trainable=False, name="discounted")
        self.mean, self.variance, self.count = (
            tf.Variable(begin, trainable=False, name=name)
            for begin, name in ((0.0, "mean"), (1.0, "variance"), (1e-4, "count"))
        )

    def divide(self, rollout: Rollout) -> tf.Tensor:
        """[T, E] rewards in units of that deviation, this rollout's returns counted in."""
        discounted, returns = self._returns(rollout)
        self.discounted.assign(discounted)
        count = float(returns.shape[0] * returns.shape[1])
        new = (tf.reduce_mean(returns), tf.math.reduce_variance(returns), count)
        old = (self.mean, self.variance, self.count)
        for statistic, value in zip(old, merge_statistics(*old, *new), strict=True):
            statistic.assign(value)
        scaled = rollout.reward * tf.math.rsqrt(self.variance + 1e-8)
        return tf.clip_by_value(scaled, -self.clip, self.clip)

    def _returns(self, rollout: Rollout) -> tuple[tf.Tensor, tf.Tensor]:
        """The discounted sums of past rewards, [E] now and [T, E] after every step."""
        steps = rollout.reward.shape[0]

        def step(time, discounted, sums):
            discounted = self.gamma * discounted + tf.gather(rollout.reward, time)
            sums = sums.write(time, discounted)
            return time + 1, tf.where(tf.gather(rollout.last, time), 0.0, discounted), sums

        sums = tf.TensorArray(tf.float32, steps, element_shape=self.discounted.shape)
        _, discounted, sums = tf.while_loop(
            lambda time, *_: time < steps,
            step,
            (tf.constant(0), self.discounted.read_value(), sums),
        )
        return discounted, sums.stack()
