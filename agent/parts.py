"""The parts of an agent: those that a user may give, and those by which it learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import keras

from kytolly.agent.schedules import Schedule, ScheduledNumbers
from kytolly.environment.spec import EnvSpec
from kytolly.policy.base import Policy

Model = keras.Model | Callable[[EnvSpec], keras.Model]  # or what makes one
Optimizer = keras.optimizers.Optimizer
MakeOptimizer = Callable[..., Optimizer]  # of the learning rate


@dataclasses.dataclass(frozen=True)
class CustomParts:
    """The parts that a user gives; None for the algorithm's.

    Attributes:
        optimizer: Keras optimizer, or a function of the learning rate that makes one.
        policy: Subclass of the algorithm's policy.
        first_rate: Learning rate of the config with which the run began: a restart after a loss
            that was not finite has a smaller one. None: that of the config.
    """

    optimizer: Optimizer | MakeOptimizer | None = None
    policy: type[Policy] | None = None
    first_rate: float | None = None


class AgentParts(NamedTuple):
    """The parts by which an agent learns."""

    policy: type[Policy]
    optimizer: Optimizer
    scheduled: ScheduledNumbers
    epsilon: Schedule | None = None  # in place of the config's linear fall
    names: Mapping[str, str] | None = None  # of the user's classes, by part
