"""Settings of Rainbow."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.c51 import C51Config
from kytolly.config.dqn import NETWORKS
from kytolly.config.fields import setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RainbowConfig(C51Config):
    """Settings of Rainbow: those of C51, with all switches on."""

    algorithm: Literal["rainbow"] = setting("rainbow", "rainbow")
    network: NETWORKS = setting(
        "dueling_auto", "architecture; dueling_auto: that of auto, with two streams"
    )
    double: bool = setting(True, "let the online network pick the next action of a target")
    n_step: Annotated[int, Meta(ge=1, le=1_000), "env steps"] = setting(
        3, "rewards that are summed before bootstrapping"
    )
    num_atoms: Annotated[int, Meta(ge=2, le=4_096), "atoms"] = setting(
        27, "returns, evenly spaced, to which an action's distribution gives probabilities"
    )
    noisy: bool = setting(True, "explore by noise in the network's weights beside epsilon")
    prioritized: bool = setting(True, "draw rows by how wrong their estimates were")
