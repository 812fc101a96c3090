"""Settings of PQN."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import (
    DefaultCount,
    Environments,
    EnvSteps,
    NotNegative,
    Positive,
    Share,
    Widths,
    setting,
)
from kytolly.config.rollout import Minibatches, RolloutConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PQNConfig(RolloutConfig):
    """Settings of PQN. A rollout holds `rollout_steps` steps of each of `num_envs` environments."""

    algorithm: Literal["pqn"] = setting("pqn", "pqn")
    num_envs: Environments = setting(DefaultCount(32), "environments stepped together")
    rollout_steps: Annotated[int, Meta(ge=1, le=10**6), "env steps"] = setting(
        32, "steps of each environment per iteration"
    )
    epochs: Annotated[int, Meta(ge=1, le=10**4), "passes"] = setting(4, "passes over a rollout")
    num_minibatches: Minibatches = setting(
        DefaultCount(8),
        "equal parts of a rollout, with one gradient each; fewer where 8 do not fit, or have less "
        "than 64 rows",
    )
    learning_rate: Positive = setting(1e-3, "RAdam's step size at the start")
    learning_rate_final: NotNegative | None = setting(
        0.0, "RAdam's step size at the end of the run, reached linearly; none: constant"
    )
    adam_epsilon: Positive = setting(1e-8, "constant in RAdam's denominator")
    gamma: Share = setting(0.99, "discount per env step")
    td_lambda: Share = setting(0.95, "weight of longer returns in targets (lambda)")
    max_grad_norm: Positive | None = setting(
        10.0, "largest norm of the gradient of all weights together; none: any"
    )
    epsilon_start: Share = setting(1.0, "share of random actions at the start")
    epsilon_final: Share = setting(0.2, "share of random actions at the end of the schedule")
    exploration_env_steps: EnvSteps = setting(20_000, "length of epsilon's linear decay")
    network: Literal["auto", "mlp", "cnn", "grid_cnn"] = setting(
        "auto", "auto: cnn for images, grid_cnn for grids of bools or small integers, else mlp"
    )
    hidden_units: Widths = setting((128, 128), "widths of the hidden layers")
    layer_norm: bool = setting(
        True, "normalize each layer before its ReLU, which takes the place of a target network"
    )
    normalize_rewards: bool = setting(True, "divide rewards by the running deviation of returns")

    units_of_weights = ("normalize_rewards",)  # as in PPOConfig
    optimizer = "radam"
    he_normal = True
    exploration_repeat = 1  # each step decides anew
    noisy = False
    epsilon_middle = None
    cuts_n_step = False

    def __post_init__(self) -> None:
        RolloutConfig.__post_init__(self)
        if self.epsilon_final > self.epsilon_start:
            raise ValueError(
                f"epsilon_final ({self.epsilon_final}) is above epsilon_start "
                f"({self.epsilon_start}): exploration only falls. Swap them."
            )
