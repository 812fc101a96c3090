"""Settings of C51."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.dqn import DQNConfig
from kytolly.config.fields import setting
from kytolly.config.munchausen import MunchausenConfig

_Return = Annotated[float, Meta(ge=-1e30, le=1e30), "reward"]


FLOAT32_STEP = 2.0**-22  # of a number's size: two steps of float32


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class C51Config(MunchausenConfig):
    """Settings of C51, beside those of DQN and of Munchausen-DQN."""

    algorithm: Literal["c51"] = setting("c51", "c51")
    munchausen: bool = setting(
        False, "add the log-probability of the action to rewards, and the entropy to values"
    )
    num_atoms: Annotated[int, Meta(ge=2, le=4_096), "atoms"] = setting(
        51, "returns, evenly spaced, to which an action's distribution gives probabilities"
    )
    value_min: _Return = setting(-10.0, "lowest return of the distributions, times reward_scale")
    value_max: _Return = setting(10.0, "highest return of the distributions, times reward_scale")
    outputs_per_action = property(lambda cfg: cfg.num_atoms)
    units_of_weights = (*DQNConfig.units_of_weights, "value_min", "value_max")

    def __post_init__(self) -> None:
        DQNConfig.__post_init__(self)
        if self.value_min >= self.value_max:
            raise ValueError(
                f"value_min is {self.value_min:g} and value_max {self.value_max:g}, expected a "
                "lower value_min: the distributions of returns reach from one to the other. Change "
                "one of them."
            )
        step = (self.value_max - self.value_min) / (self.num_atoms - 1)
        if step < FLOAT32_STEP * max(abs(self.value_min), abs(self.value_max)):
            raise ValueError(
                f"value_min is {self.value_min!r} and value_max {self.value_max!r} with "
                f"{self.num_atoms} atoms between them, expected atoms that float32 can tell apart. "
                "Widen the bounds, or lower num_atoms."
            )
