"""Settings of proximal policy optimization."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import (
    Default,
    DefaultShare,
    NotNegative,
    Positive,
    Share,
    Widths,
    setting,
)
from kytolly.config.rollout import RolloutConfig

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.environment.spec import EnvSpec


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig(RolloutConfig):
    """Settings of PPO. A rollout holds `rollout_steps` steps of each of `num_envs` environments."""

    algorithm: Literal["ppo"] = setting("ppo", "ppo")
    learning_rate: Positive = setting(6e-4, "Adam's step size at the start")
    learning_rate_final: NotNegative | None = setting(
        0.0, "Adam's step size at the end of the run, reached linearly; none: constant"
    )
    adam_epsilon: Positive = setting(1e-5, "constant in Adam's denominator (epsilon-hat)")
    gamma: Share = setting(0.99, "discount per env step")
    gae_lambda: Share = setting(0.95, "weight of longer returns in advantages (lambda)")
    gae_lambda_value: Share | None = setting(
        DefaultShare(0.99),
        "that weight in what values learn; none: gae_lambda, as if nothing is given where actions "
        "are continuous or observations are no vectors of real numbers",
    )
    clip_range: Positive = setting(0.2, "largest distance of a probability ratio from 1")
    clip_range_value: Annotated[Positive, "reward"] | None = setting(
        None, "largest change of a value during one rollout's epochs; none: any"
    )
    entropy_coef: NotNegative | None = setting(
        None, "weight of the entropy bonus; none: 0.02 for discrete actions, 0 for continuous ones"
    )
    value_coef: NotNegative = setting(0.5, "weight of the value loss")
    max_grad_norm: Positive | None = setting(
        0.5, "largest norm of the gradient of all weights together; none: any"
    )
    normalize_advantage: bool = setting(True, "scale advantages to mean 0, deviation 1 per update")
    target_kl: Positive | None = setting(
        None, "KL divergence of which 1.5 times ends the epochs of a rollout; none: no such end"
    )
    average_share: Share = setting(
        0.1,
        "share of the updates so far over which weights are averaged into those that are "
        "evaluated and saved; 0: the newest weights",
    )
    kept_rollouts: Annotated[int, Meta(ge=1, le=64), "rollouts"] = setting(
        1,
        "newest rollouts whose rows updates learn from: each epoch passes over all of them, in as "
        "many updates of that many times the rows; 1: the newest alone",
    )
    network: Literal["auto", "mlp", "cnn", "small_cnn", "grid_cnn", "impala"] = setting(
        "auto", "auto: cnn for images, grid_cnn for grids of bools or small integers, else mlp"
    )
    hidden_units: Widths = setting((64, 64), "widths of the hidden layers")
    impala_width: Annotated[int, Meta(ge=1, le=64)] = setting(
        2, "channels of the network impala, times 16, 32 and 32"
    )
    impala_pool_size: Annotated[int, Meta(ge=0, le=64)] = setting(
        6, "cells of a side whose maxima the network impala passes on; 0: every pixel"
    )
    activation: Literal["tanh", "relu", "elu", "silu"] = setting(
        "tanh", "activation of the hidden layers"
    )
    shared_torso: bool = setting(False, "share one torso between policy and value")
    action_bounds: Literal["scale", "clip", "squash"] = setting(
        "scale",
        "how continuous actions fit their bounds; scale: -1 and 1 mean the bounds; clip: in the "
        "environment's own units; squash: by a tanh",
    )
    # The policy clips it to this range, and a value outside has no gradient.
    log_std_init: Annotated[float, Meta(ge=-20, le=2)] = setting(
        0.0, "log standard deviation of continuous actions at the start"
    )
    state_dependent_std: bool = setting(
        False, "compute the standard deviation of continuous actions from the observation"
    )
    noise_correlation: Annotated[float, Meta(ge=0, le=0.9999)] = setting(
        0.0, "correlation of a continuous action's noise with the previous step's"
    )
    normalize_rewards: bool = setting(True, "divide rewards by the running deviation of returns")

    units_of_weights = ("normalize_rewards", "action_bounds")  # without them weights mean nothing

    def fitted_to(self, spec: EnvSpec, own_network: bool = False) -> RunConfig:
        """As in the parent, with one lambda where two are no better."""
        fitted = RolloutConfig.fitted_to(self, spec, own_network)
        helps = spec.has_real_vectors and not (spec.has_images or spec.has_numbers_as_actions)
        if helps or not isinstance(self.gae_lambda_value, Default):
            return fitted
        return dataclasses.replace(fitted, gae_lambda_value=None)

    @property
    def averaged_share(self) -> float:
        """As for every config, a change being an update."""
        return self.average_share

    def __post_init__(self) -> None:
        RolloutConfig.__post_init__(self)
        if self.normalize_advantage and self.rows_per_update < 2:
            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) leaves 1 row per update, and the "
                "advantage of a single row cannot be normalized. Lower num_minibatches, or set "
                "normalize_advantage to false."
            )
