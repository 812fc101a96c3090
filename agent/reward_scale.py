"""Rewards in units of the deviation of their discounted sum, for `normalize_rewards`."""

from __future__ import annotations

import tensorflow as tf

from kytolly.model.normalization import merge_statistics
from kytolly.policy.batch import Rollout
from kytolly.policy.returns import weighted_sums

KNOWN_ENV_STEPS = 20_000.0  # that another run's scale of returns counts for


class DiscountedReturns(tf.Module):
    """The discounted sums of the past rewards of each environment, through all rollouts.

    Args:
        num_envs: Environments, `E`.
        gamma: Discount of an env step.
        name: Of the module.
    """

    def __init__(self, num_envs: int, gamma: float, name: str):
        super().__init__(name=name)
        self.gamma = gamma
        self.discounted = tf.Variable(tf.zeros([num_envs]), trainable=False, name="discounted")

    def returns(self, rollout: Rollout) -> tf.Tensor:
        """[T, E] the sums after every step of the next rollout."""
        begins = tf.concat([tf.zeros_like(rollout.last[:1]), rollout.last[:-1]], axis=0)
        weight = tf.where(begins, 0.0, self.gamma)
        before = self.gamma * self.discounted[tf.newaxis]
        terms = tf.concat([rollout.reward[:1] + before, rollout.reward[1:]], axis=0)
        # Backwards in time, the sums of the past are those of the future.
        sums = weighted_sums(terms[::-1], weight[::-1])[::-1]
        self.discounted.assign(tf.where(rollout.last[-1], 0.0, sums[-1]))
        return sums


class RewardScale(DiscountedReturns):
    """Divides rewards by the running deviation of the discounted return.

    Nothing here has a unit, so that rewards times a power of 2 give the same result to the last
    bit. Where all returns were equal so far, rewards become 0.

    Args:
        num_envs: Environments, `E`.
        gamma: Discount of an env step.
        clip: Largest absolute reward that it returns.

    Source: Engstrom et al. 2020, arXiv:2005.12729, section 3, "reward scaling".
    """

    def __init__(self, num_envs: int, gamma: float, clip: float):
        super().__init__(num_envs, gamma, "reward_scale")
        self.clip = clip
        self.mean, self.variance, self.count = (
            tf.Variable(0.0, trainable=False, name=name) for name in ("mean", "variance", "count")
        )

    def divide(self, rollout: Rollout) -> tf.Tensor:
        """[T, E] rewards in units of that deviation, this rollout's returns counted in."""
        returns = self.returns(rollout)
        count = float(returns.shape[0] * returns.shape[1])
        new = (tf.reduce_mean(returns), tf.math.reduce_variance(returns), count)
        old = (self.mean, self.variance, self.count)
        for statistic, value in zip(old, merge_statistics(*old, *new), strict=True):
            statistic.assign(value)
        return self.units(rollout.reward)

    def units(self, reward: tf.Tensor) -> tf.Tensor:
        """The same for further rewards, which are counted already."""
        scaled = tf.math.divide_no_nan(reward, tf.sqrt(self.variance))
        return tf.clip_by_value(scaled, -self.clip, self.clip)


class ReturnScale(DiscountedReturns):
    """The inverse size of the discounted return, for targets of about the same size everywhere.

    The size is the root of the mean square of all sums so far: unlike a deviation, it bounds what
    the network must be able to say where returns are large and much the same.

    Args:
        num_envs: Environments, `E`.
        gamma: Discount of an env step.
    """

    def __init__(self, num_envs: int, gamma: float):
        super().__init__(num_envs, gamma, "return_scale")
        self.square = tf.Variable(0.0, trainable=False, name="square")
        self.count = tf.Variable(0.0, trainable=False, name="count")

    def begin_at(self, factor: float) -> None:
        """Begin with the factor of another run, as if `KNOWN_ENV_STEPS` had shown it."""
        self.square.assign(1.0 / factor**2)
        self.count.assign(KNOWN_ENV_STEPS)

    def factor(self, rollout: Rollout) -> tf.Tensor:
        """[] 1 over the size, this rollout counted in; 1 as long as there was no reward."""
        squares = tf.square(self.returns(rollout))
        self.count.assign_add(float(squares.shape.num_elements()))
        share = squares.shape.num_elements() / self.count
        self.square.assign_add(share * (tf.reduce_mean(squares) - self.square))
        return tf.where(self.square > 0.0, tf.math.rsqrt(self.square), 1.0)
