"""Rewards in units of the largest one, for a table of action values."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy.batch import Rollout


class LargestReward(tf.Module):
    """The inverse of the largest absolute reward, for a table's values.

    Most of the returns seen are those of random actions. Divided by their size the rewards of a
    good episode would be small beside the changes of an update, and values that begin at 0 would no
    longer look better than what was tried.
    """

    def __init__(self) -> None:
        super().__init__(name="largest_reward")
        self.largest = tf.Variable(0.0, trainable=False, name="largest")

    def begin_at(self, factor: float) -> None:
        """Begin with the factor of another run."""
        self.largest.assign(1.0 / factor)

    def factor(self, rollout: Rollout) -> tf.Tensor:
        """[] 1 over the largest, this rollout counted in; 1 as long as there was no reward."""
        largest = tf.maximum(self.largest, tf.reduce_max(tf.abs(rollout.reward)))
        self.largest.assign(largest)
        return tf.where(largest > 0.0, 1.0 / largest, 1.0)
