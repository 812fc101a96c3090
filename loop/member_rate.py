"""A learning rate that falls over updates, for each member of a population from its own value."""

from __future__ import annotations

import copy
from typing import Any

import keras
import tensorflow as tf

from kytolly.policy.adam import inner_optimizer
from kytolly.policy.base import Policy

Decay = keras.optimizers.schedules.PolynomialDecay


class MemberRate(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule of the member that learns, whose start and end are in `policy.varied`.

    Args:
        schedule: Of one member.
        policy: Whose optimizer follows it.
    """

    def __init__(self, schedule: Decay, policy: Policy):
        self.schedule, self.policy = schedule, policy

    def __call__(self, step: tf.Tensor) -> Any:
        """[] the learning rate of an update."""
        own = copy.copy(self.schedule)
        own.initial_learning_rate, own.end_learning_rate = self.policy.varied()["learning_rate"]
        return own(step)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the one member's schedule."""
        return self.schedule.get_config()


def follow_member_rates(policy: Policy) -> None:
    """Let the optimizer, which follows a schedule, follow that of each member."""
    optimizer = inner_optimizer(policy.optimizer)
    optimizer._learning_rate = MemberRate(optimizer._learning_rate, policy)
