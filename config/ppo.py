"""Settings of proximal policy optimization."""

from __future__ import annotations

import dataclasses

from kytolly.config.fields import check_fields, setting
from kytolly.config.run import RunConfig


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig(RunConfig):
    """Settings of PPO. A rollout holds `rollout_steps` steps of each of `num_envs` environments."""

    algorithm: str = setting("ppo", "ppo", choices=("ppo",))
    total_env_steps: int = setting(
        100_000, "length of training, all environments together", unit="env steps", at_least=1
    )
    num_envs: int = setting(8, "environments stepped together", unit="environments", at_least=1)
    rollout_steps: int = setting(
        128, "steps of each environment per iteration", unit="env steps", at_least=1
    )
    epochs: int = setting(4, "passes over a rollout", unit="passes", at_least=1)
    num_minibatches: int = setting(
        4, "equal parts of a rollout, with one gradient each", unit="minibatches", at_least=1
    )
    gradient_accumulation: int = setting(
        1, "minibatches whose gradients are added up for one update", unit="minibatches", at_least=1
    )
    learning_rate: float = setting(3e-4, "Adam's step size at the start", above=0)
    learning_rate_final: float | None = setting(
        None, "Adam's step size at the end of the run, reached linearly; none: constant", at_least=0
    )
    adam_epsilon: float = setting(1e-5, "constant in Adam's denominator (epsilon-hat)", above=0)
    gamma: float = setting(0.99, "discount per env step", at_least=0, at_most=1)
    gae_lambda: float = setting(
        0.95, "weight of longer returns in advantages (lambda)", at_least=0, at_most=1
    )
    clip_range: float = setting(0.2, "largest distance of a probability ratio from 1", above=0)
    clip_range_value: float | None = setting(
        None,
        "largest change of a value during one rollout's epochs; none: any",
        unit="reward",
        above=0,
    )
    entropy_coef: float = setting(0.0, "weight of the entropy bonus", at_least=0)
    value_coef: float = setting(0.5, "weight of the value loss", at_least=0)
    max_grad_norm: float = setting(
        0.5, "largest norm of the gradient of all weights together", above=0
    )
    normalize_advantage: bool = setting(
        True, "scale advantages to mean 0, deviation 1 in each update"
    )
    target_kl: float | None = setting(
        None,
        "KL divergence of which 1.5 times ends the epochs of a rollout; none: no such end",
        above=0,
    )
    network: str = setting(
        "auto",
        "architecture; auto: cnn for images, else mlp",
        choices=("auto", "mlp", "cnn"),
    )
    hidden_units: tuple[int, ...] = setting(
        (64, 64), "widths of the hidden layers", unit="units", at_least=1
    )
    activation: str = setting(
        "tanh", "activation of the hidden layers", choices=("tanh", "relu", "elu", "silu")
    )
    shared_torso: bool = setting(False, "share one torso between policy and value")
    action_bounds: str = setting(
        "clip",
        "how continuous actions stay in their bounds; squash: a tanh, also in the log-probability",
        choices=("clip", "squash"),
    )
    log_std_init: float = setting(0.0, "log standard deviation of continuous actions at the start")
    state_dependent_std: bool = setting(
        False, "compute the standard deviation of continuous actions from the observation"
    )
    noise_correlation: float = setting(
        0.0,
        "correlation of a continuous action's noise with the previous step's",
        at_least=0,
        at_most=0.9999,
    )
    normalize_observations: bool = setting(
        False, "scale observations by their running mean and deviation, which the network keeps"
    )
    normalize_rewards: bool = setting(
        False, "divide rewards by the running deviation of discounted returns"
    )
    normalized_clip: float = setting(
        10.0, "largest size of a normalized observation or reward, which is clipped to it", above=0
    )

    def __post_init__(self) -> None:
        check_fields(self)
        rows = self.num_envs * self.rollout_steps
        if rows % self.num_minibatches:
            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) does not divide the rollout of {rows} "
                f"rows (num_envs {self.num_envs} x rollout_steps {self.rollout_steps}): they "
                f"must be equally large. {nearest_divisors(rows, self.num_minibatches)} would do."
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
    def updates_per_epoch(self) -> int:
        """Optimizer steps in one pass over a rollout."""
        return self.num_minibatches // self.gradient_accumulation

    @property
    def rows_per_update(self) -> int:
        """Rows behind one optimiser step."""
        return self.env_steps_per_iteration // self.updates_per_epoch

    @property
    def updates_per_iteration(self) -> int:
        """Optimizer steps in all passes over a rollout, unless `target_kl` ends them."""
        return self.epochs * self.updates_per_epoch

    @property
    def learning_rate_decay_updates(self) -> None:
        """None: the learning rate follows the env steps."""
        return None

    def for_playing(self) -> PPOConfig:
        """One environment; its rollout need not be divisible."""
        return dataclasses.replace(
            self,
            num_envs=1,
            async_envs=False,
            num_minibatches=1,
            gradient_accumulation=1,
            normalize_advantage=False,
        )


def nearest_divisors(rows: int, wanted: int) -> str:
    """The divisors of `rows` just below and just above `wanted`, for a message."""
    divisors = [n for n in range(1, rows + 1) if rows % n == 0]
    below = [n for n in divisors if n < wanted][-1:]
    return " or ".join(str(n) for n in below + [n for n in divisors if n > wanted][:1])
