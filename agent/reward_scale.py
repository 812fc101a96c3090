"""Rewards in units of the deviation of their discounted sum, for `normalize_rewards`."""

from __future__ import annotations

import tensorflow as tf

from kytolly.model.normalization import merge_statistics
from kytolly.policy.batch import Rollout


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

        def step(
            time: tf.Tensor, discounted: tf.Tensor, sums: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
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
