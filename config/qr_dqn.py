"""Settings of QR-DQN."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import setting
from kytolly.config.munchausen import MunchausenConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class QRDQNConfig(MunchausenConfig):
    """Settings of QR-DQN, beside those of DQN and of Munchausen-DQN."""

    algorithm: Literal["qr-dqn"] = setting("qr-dqn", "qr-dqn")
    munchausen: bool = setting(
        False, "add the log-probability of the action to rewards, and the entropy to values"
    )
    num_quantiles: Annotated[int, Meta(ge=1, le=4_096), "quantiles"] = setting(
        32, "quantiles of an action's return"
    )
    outputs_per_action = property(lambda cfg: cfg.num_quantiles)
