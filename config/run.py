"""Settings that every algorithm shares."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Annotated, Any, Literal

from msgspec import Meta

from kytolly.config.fields import Environments, EnvSteps, Episodes, Seed, check_fields, setting

_DEVICE = Meta(
    pattern=r"\A(auto|cpu|(gpu|cuda)(:[0-9]{1,3})?)\Z", description="auto, cpu, gpu or gpu:N"
)

MOST_PROCESSES = 1_024


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Settings that every algorithm shares: length, environments, device, intervals, stopping."""

    total_env_steps: EnvSteps = setting(50_000, "length of training, all environments together")
    num_envs: Environments = setting(1, "environments stepped together")
    seed: Seed = setting(0, "seed of every random draw")
    loop: Literal["auto", "device", "host"] = setting(
        "auto",
        "where the environment runs; auto: device where it exists as tensor code, else host",
    )
    device: Annotated[str, _DEVICE] = setting(
        "auto",
        "device of networks, memory and loop: auto (the first GPU, if any), cpu, gpu or gpu:N",
    )
    precision: Literal["auto", "float32", "mixed_float16", "mixed_bfloat16"] = setting(
        "auto", "number format of the networks; auto: Keras's global policy"
    )
    xla: bool = setting(True, "compile the training program with XLA")
    async_envs: bool = setting(False, "host loop: run each environment in a separate process")
    env_timeout_seconds: Annotated[float, Meta(gt=0, le=1e9), "seconds"] = setting(
        60.0, "longest reset or step of an environment in a separate process; the run ends after it"
    )
    log_interval_env_steps: EnvSteps | None = setting(
        None, "interval between two rows of metrics; none: a fiftieth of the run"
    )
    evaluation_interval_env_steps: EnvSteps | None = setting(
        None, "interval between two evaluations; none: a twentieth of the run"
    )
    evaluation_episodes: Episodes = setting(
        20, "greedy episodes in each evaluation during training"
    )
    final_evaluation_episodes: Episodes = setting(
        100, "greedy episodes that evaluate the best weights at the end"
    )
    checkpoint_interval_env_steps: EnvSteps | None = setting(
        None, "interval between two checkpoints; none: a fifth of the run"
    )
    reward_threshold: Annotated[float, Meta(ge=-1e30, le=1e30), "reward"] | None = setting(
        None, "mean return of an evaluation that ends training; none: no such end"
    )
    early_stop_patience: Annotated[int, Meta(ge=1, le=10**6), "evaluations"] | None = setting(
        None, "evaluations without improvement that end training; none: no such end"
    )
    early_stop_min_improvement: Annotated[float, Meta(ge=0, le=1e30), "reward"] = setting(
        0.0, "smallest improvement that counts for early stopping"
    )
    max_wall_seconds: Annotated[float, Meta(gt=0, le=1e9), "seconds"] | None = setting(
        None, "wall-clock time that ends training; none: no such end"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.async_envs and self.num_envs > MOST_PROCESSES:
            raise ValueError(
                f"num_envs is {self.num_envs} with async_envs, which starts a process for each, "
                f"expected at most {MOST_PROCESSES:,}. Lower num_envs or set async_envs to false."
            )

    def interval(self, name: str, share_of_run: int) -> int:
        """Env steps of the interval field `name`; by default a share of the whole run."""
        own = getattr(self, name)
        return own if own is not None else max(1, self.total_env_steps // share_of_run)

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in an iteration."""
        raise NotImplementedError

    @property
    def env_steps_per_iteration(self) -> int:
        """Env steps of all environments between two times of learning."""
        return self.num_envs * self.rollout_steps

    @property
    def updates_per_iteration(self) -> int:
        """Most updates after a rollout."""
        raise NotImplementedError

    @property
    def updates_per_env_step(self) -> Fraction:
        """Updates over env steps, once learning has begun."""
        return Fraction(self.updates_per_iteration, self.env_steps_per_iteration)

    @property
    def first_update_env_steps(self) -> int:
        """Env steps that are collected before the first update."""
        return 0

    def for_playing(self) -> Any:
        """The same configuration for one environment that plays and does not learn."""
        return dataclasses.replace(self, num_envs=1, async_envs=False)
