"""Settings of proximal policy optimization."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import Meta

from kytolly.config.fields import (
    Default,
    Environments,
    EnvSteps,
    NotNegative,
    Positive,
    Share,
    Widths,
    setting,
)
from kytolly.config.run import RunConfig

Minibatches = Annotated[int, Meta(ge=1, le=2**17), "minibatches"]
MOST_ROWS = 2**26  # of a rollout; an observation of 4 numbers then takes 1 GiB


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig(RunConfig):
    """Settings of PPO. A rollout holds `rollout_steps` steps of each of `num_envs` environments."""

    algorithm: Literal["ppo"] = setting("ppo", "ppo")
    total_env_steps: EnvSteps = setting(100_000, "length of training, all environments together")
    num_envs: Environments = setting(Default(8), "environments stepped together")
    rollout_steps: Annotated[int, Meta(ge=1, le=10**6), "env steps"] = setting(
        128, "steps of each environment per iteration"
    )
    epochs: Annotated[int, Meta(ge=1, le=10**4), "passes"] = setting(4, "passes over a rollout")
    num_minibatches: Minibatches = setting(
        Default(4), "equal parts of a rollout, with one gradient each; fewer where 4 do not fit"
    )
    learning_rate: Positive = setting(3e-4, "Adam's step size at the start")
    learning_rate_final: NotNegative | None = setting(
        None, "Adam's step size at the end of the run, reached linearly; none: constant"
    )
    adam_epsilon: Positive = setting(1e-5, "constant in Adam's denominator (epsilon-hat)")
    gamma: Share = setting(0.99, "discount per env step")
    gae_lambda: Share = setting(0.95, "weight of longer returns in advantages (lambda)")
    clip_range: Positive = setting(0.2, "largest distance of a probability ratio from 1")
    clip_range_value: Annotated[Positive, "reward"] | None = setting(
        None, "largest change of a value during one rollout's epochs; none: any"
    )
    entropy_coef: NotNegative = setting(0.0, "weight of the entropy bonus")
    value_coef: NotNegative = setting(0.5, "weight of the value loss")
    max_grad_norm: Positive | None = setting(
        0.5, "largest norm of the gradient of all weights together; none: any"
    )
    normalize_advantage: bool = setting(True, "scale advantages to mean 0, deviation 1 per update")
    target_kl: Positive | None = setting(
        None, "KL divergence of which 1.5 times ends the epochs of a rollout; none: no such end"
    )
    network: Literal["auto", "mlp", "cnn", "grid_cnn"] = setting(
        "auto", "auto: cnn for images, grid_cnn for grids of bools or small integers, else mlp"
    )
    hidden_units: Widths = setting((64, 64), "widths of the hidden layers")
    activation: Literal["tanh", "relu", "elu", "silu"] = setting(
        "tanh", "activation of the hidden layers"
    )
    shared_torso: bool = setting(False, "share one torso between policy and value")
    action_bounds: Literal["clip", "squash"] = setting(
        "clip", "how continuous actions stay in bounds; squash: a tanh, also in the log-probability"
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
    normalize_rewards: bool = setting(False, "divide rewards by the running deviation of returns")

    first_update_env_steps = 0  # learning begins with the first rollout
    learning_rate_decay_updates = None  # the learning rate follows the env steps

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        rows = self.env_steps_per_iteration
        product = f"num_envs {self.num_envs} x rollout_steps {self.rollout_steps}"
        if rows > MOST_ROWS:
            raise ValueError(
                f"a rollout has {rows:,} rows ({product}), expected at most {MOST_ROWS:,}. Lower "
                "one of them."
            )
        if isinstance(self.num_minibatches, Default):
            count = next(n for n in range(self.num_minibatches, 0, -1) if rows % n == 0)
            object.__setattr__(self, "num_minibatches", Default(count))
        if rows % self.num_minibatches:
            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) does not divide the rollout of {rows} "
                f"rows ({product}): they must be equally large. "
                f"{nearest_divisors(rows, self.num_minibatches)} would do."
            )
        if self.num_minibatches % self.gradient_accumulation:
            raise ValueError(
                f"gradient_accumulation ({self.gradient_accumulation}) does not divide "
                f"num_minibatches ({self.num_minibatches}): the last update of a pass would lack "
                "minibatches. Change one of them."
            )
        if self.normalize_advantage and self.rows_per_update < 2:
            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) leaves 1 row per update, and the "
                "advantage of a single row cannot be normalized. Lower num_minibatches, or set "
                "normalize_advantage to false."
            )

    @property
    def env_steps_per_iteration(self) -> int:
        """Rows of a rollout."""
        return self.num_envs * self.rollout_steps

    @property
    def updates_per_epoch(self) -> int:
        """Optimizer steps in one pass over a rollout."""
        return self.num_minibatches // self.gradient_accumulation

    @property
    def rows_per_update(self) -> int:
        """Rows behind one optimizer step."""
        return self.env_steps_per_iteration // self.updates_per_epoch

    def in_smaller_batches(self, factor: int) -> PPOConfig:
        """The same updates, each from `factor` times as many batches; it divides a batch."""
        batches = self.gradient_accumulation * factor
        count = self.num_minibatches * factor
        return dataclasses.replace(self, num_minibatches=count, gradient_accumulation=batches)

    @property
    def updates_per_iteration(self) -> int:
        """Optimizer steps in all passes over a rollout, unless `target_kl` ends them."""
        return self.epochs * self.updates_per_epoch

    @property
    def updates_per_env_step(self) -> Fraction:
        """Updates over env steps."""
        return Fraction(self.updates_per_iteration, self.env_steps_per_iteration)


def nearest_divisors(rows: int, wanted: int) -> str:
    """The divisors of `rows` just below and just above `wanted`, for a message."""
    pairs = [(n, rows // n) for n in range(1, math.isqrt(rows) + 1) if rows % n == 0]
    divisors = sorted({n for pair in pairs for n in pair})
    below = [n for n in divisors if n < wanted][-1:]
    return " or ".join(str(n) for n in below + [n for n in divisors if n > wanted][:1])
