"""Settings that every algorithm shares."""

from __future__ import annotations

import dataclasses
from typing import Any

from kytolly.config.fields import check_fields, setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Settings that every algorithm shares: length, environments, device, intervals, stopping."""

    total_env_steps: int = setting(
        50_000, "length of training, all environments together", unit="env steps", at_least=1
    )
    num_envs: int = setting(1, "environments stepped together", unit="environments", at_least=1)
    seed: int = setting(0, "seed of every random draw", at_least=0, at_most=2**31 - 1)
    loop: str = setting(
        "auto",
        "where the environment runs; auto: device where it exists as tensor code, else host",
        choices=("auto", "device", "host"),
    )
    device: str = setting(
        "auto",
        "device of networks, memory and loop: auto (the first GPU, if any), cpu, gpu or gpu:N",
    )
    precision: str = setting(
        "auto",
        "number format of the networks; auto: Keras's global policy",
        choices=("auto", "float32", "mixed_float16", "mixed_bfloat16"),
    )
    xla: bool = setting(True, "compile the training program with XLA")
    async_envs: bool = setting(False, "host loop: run each environment in a separate process")
    env_timeout_seconds: float = setting(
        60.0,
        "longest reset or step of an environment in a separate process; the run ends after it",
        unit="seconds",
        above=0,
    )
    log_interval_env_steps: int | None = setting(
        None,
        "interval between two rows of metrics; none: a fiftieth of the run",
        unit="env steps",
        at_least=1,
    )
    evaluation_interval_env_steps: int | None = setting(
        None,
        "interval between two evaluations; none: a twentieth of the run",
        unit="env steps",
        at_least=1,
    )
    evaluation_episodes: int = setting(
        20, "greedy episodes in each evaluation during training", unit="episodes", at_least=1
    )
    final_evaluation_episodes: int = setting(
        100,
        "greedy episodes that evaluate the best weights at the end",
        unit="episodes",
        at_least=1,
    )
    checkpoint_interval_env_steps: int | None = setting(
        None,
        "interval between two checkpoints; none: a fifth of the run",
        unit="env steps",
        at_least=1,
    )
    reward_threshold: float | None = setting(
        None, "mean return of an evaluation that ends training; none: no such end", unit="reward"
    )
    early_stop_patience: int | None = setting(
        None,
        "evaluations without improvement that end training; none: no such end",
        unit="evaluations",
        at_least=1,
    )
    early_stop_min_improvement: float = setting(
        0.0, "smallest improvement that counts for early stopping", unit="reward", at_least=0
    )
    max_wall_seconds: float | None = setting(
        None, "wall-clock time that ends training; none: no such end", unit="seconds", above=0
    )

    def __post_init__(self) -> None:
        check_fields(self)

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

    def for_playing(self) -> Any:
        """The same configuration for one environment that plays and does not learn."""
        return dataclasses.replace(self, num_envs=1, async_envs=False)
