"""Settings of Munchausen-DQN."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.dqn import DQNConfig
from kytolly.config.fields import Positive, Share, setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MunchausenConfig(DQNConfig):
    """Settings of Munchausen-DQN, beside those of DQN."""

    algorithm: Literal["munchausen"] = setting("munchausen", "munchausen")
    munchausen: bool = setting(
        True, "add the log-probability of the action to rewards, and the entropy to values"
    )
    munchausen_scale: Share = setting(0.9, "share of the log-probability that a reward gets")
    munchausen_lowest: Annotated[float, Meta(ge=-1e30, le=0), "reward"] = setting(
        -1.0, "lowest log-probability, times the temperature, that counts; in scaled rewards"
    )
    entropy_temperature: Annotated[Positive, "reward"] = setting(
        0.01, "difference in value, of scaled rewards, that makes an action e times as likely"
    )
