"""Settings of IQN."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import setting
from kytolly.config.munchausen import MunchausenConfig

_Quantiles = Annotated[int, Meta(ge=1, le=4_096), "quantiles"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class IQNConfig(MunchausenConfig):
    """Settings of IQN, beside those of DQN and of Munchausen-DQN."""

    algorithm: Literal["iqn"] = setting("iqn", "iqn")
    munchausen: bool = setting(
        False, "add the log-probability of the action to rewards, and the entropy to values"
    )
    num_quantiles: _Quantiles = setting(8, "quantiles drawn for the estimates of an update")
    num_target_quantiles: _Quantiles = setting(8, "quantiles drawn for the targets of an update")
    num_acting_quantiles: _Quantiles = setting(
        8, "evenly spaced quantiles whose mean is the value of an action"
    )
    num_cosines: Annotated[int, Meta(ge=1, le=4_096), "cosines"] = setting(
        64, "cosines of a quantile's level that the network sees"
    )
    layers_after_level: Annotated[int, Meta(ge=0, le=64), "layers"] = setting(
        0, "hidden layers after the one that the level enters; 1 in the paper, and slower"
    )
    outputs_per_action = property(lambda cfg: cfg.num_acting_quantiles + cfg.num_target_quantiles)
    units_of_weights = (*MunchausenConfig.units_of_weights, "num_acting_quantiles")
