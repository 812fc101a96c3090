"""Settings of PPO with a penalty on the divergence from where it began."""

from __future__ import annotations

import dataclasses
from typing import Literal

from kytolly.config.fields import NotNegative, Positive, Share, setting
from kytolly.config.ppo import PPOConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PPOKLConfig(PPOConfig):
    """Settings of PPO that stays near the network that it began with, beside those of PPO."""

    algorithm: Literal["ppo-kl"] = setting("ppo-kl", "ppo-kl")
    learning_rate: Positive = setting(3e-4, "Adam's step size at the start")
    learning_rate_final: NotNegative | None = setting(
        None, "Adam's step size at the end of the run, reached linearly; none: constant"
    )
    entropy_coef: NotNegative | None = setting(0.0, "weight of the entropy bonus")
    gae_lambda_value: Share | None = setting(
        None, "weight of longer returns in what values learn; none: gae_lambda"
    )
    average_share: Share = setting(
        0.0,
        "share of the updates so far over which weights are averaged into those that are "
        "evaluated and saved; 0: the newest weights",
    )
    normalize_rewards: bool = setting(False, "divide rewards by the running deviation of returns")
    kl_coef: NotNegative = setting(
        0.05, "weight of the KL divergence from the network before training"
    )

    @property
    def command(self) -> str | None:
        """As in the parent; a command has no network to begin with."""
        return None
