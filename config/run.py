"""Settings that every algorithm shares."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from kytolly.config.fields import (
    DefaultCount,
    Environments,
    EnvSteps,
    Episodes,
    NotNegative,
    Positive,
    Seed,
    Settings,
    check_fields,
    setting,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from kytolly.environment.spec import EnvSpec

Seconds = Annotated[float, Meta(gt=0, le=1e9), "seconds"]
MemoryUnits = Annotated[int, Meta(ge=1, le=8_192), "units"]
Arguments = Annotated[dict[str, Any], Meta(description="names and values")]
DEVICE = Meta(
    pattern=r"\A(auto|cpu|gpus|(gpu|cuda)(:[0-9]{1,3})?"
    r"|(cpu|gpu|cuda):[0-9]{1,3}(,(cpu|gpu|cuda):[0-9]{1,3})+)\Z",
    description="auto, cpu, gpu or gpu:N, or several as gpus or gpu:0,gpu:1",
)
DEVICE_HELP = "auto (the first GPU, if any), cpu, gpu or gpu:N; several: gpus or gpu:0,gpu:1"

SCHEDULES = Meta(description="schedules by setting, as in learning_rate=cosine")
ON_OOM = (
    "when memory does not suffice, stop the run or go on with smaller batches and as many more of "
    "them in an update"
)
ON_NAN = (
    "when the loss is not finite, stop the run or go on from the newest checkpoint with half the "
    "learning rate, at most 3 times"
)
MAX_PROCESSES = 1_024
OF_MEMORY = "length", "span", "inputs", "refresh", "burn_in"  # after memory_


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig(Settings):
    """Settings that every algorithm shares: length, environments, device, intervals, stopping.

    An algorithm's config adds its own, and what an iteration consists of: env steps and updates.
    """

    if TYPE_CHECKING:  # what each algorithm's config adds, as a field or a property

        @property
        def algorithm(self) -> str: ...

        @property
        def learning_rate(self) -> float: ...

        @property
        def learning_rate_final(self) -> float | None: ...

        @property
        def learning_rate_decay_updates(self) -> int | None: ...

        @property
        def adam_epsilon(self) -> float: ...

        @property
        def rollout_steps(self) -> int: ...

        @property
        def env_steps_per_iteration(self) -> int: ...

        @property
        def updates_per_env_step(self) -> Fraction: ...

        @property
        def updates_per_iteration(self) -> int: ...

        @property
        def first_update_env_steps(self) -> int: ...

        @property
        def acting_interval_env_steps(self) -> int | None: ...

        @property
        def rows_per_update(self) -> int: ...

        def in_smaller_batches(self, factor: int) -> RunConfig: ...

    total_env_steps: EnvSteps = setting(50_000, "length of training, all environments together")
    num_envs: Environments = setting(DefaultCount(1), "environments stepped together")
    env_kwargs: Arguments | None = setting(None, "arguments of the environment, by name")
    wrappers: tuple[str, ...] = setting(
        (), "wrappers of the environment, module:Class or module:Class(4, key=5), inner first"
    )
    seed: Seed = setting(0, "seed of every random draw")
    loop: Literal["auto", "device", "host"] = setting(
        "auto", "where environments run; auto: device where they exist as tensor code, else host"
    )
    device: Annotated[str, DEVICE] = setting("auto", DEVICE_HELP)
    precision: Literal["auto", "float32", "mixed_float16", "mixed_bfloat16"] = setting(
        "auto", "number format of the networks; auto: Keras's global policy"
    )
    gradient_accumulation: Annotated[int, Meta(ge=1, le=2**17), "batches"] = setting(
        1, "batches, one after the other, whose gradients make one update"
    )
    warmup_ratio: Annotated[float, Meta(ge=0, le=0.9)] = setting(
        0.0, "share of the run's updates in which the learning rate rises to its full size"
    )
    weight_decay: NotNegative = setting(
        0.0, "share of the weights in matrices, times the learning rate, that an update removes"
    )
    normalize_observations: bool | None = setting(
        None,
        "scale observations by their running mean and deviation, which the network keeps; none: "
        "those that are vectors of real numbers, where the network is not your own",
    )
    action_masks: bool = setting(
        True,
        "host loop: heed the masks of allowed actions that an environment gives beside its "
        "observations; those within a Dict observation always count",
    )
    normalized_clip: Positive = setting(10.0, "largest size of a normalized number")
    memory: Literal["gru", "lstm", "lru", "model"] | None = setting(
        None, "what the agent remembers with, as for ppo, pqn and dqn; model: your own network"
    )
    memory_units: MemoryUnits = setting(64, "numbers that the memory shows the other layers")
    memory_place: Literal["before", "after"] = setting(
        "after", "the memory's place: before the hidden layers, or after all of them but the last"
    )
    memory_length: Annotated[int, Meta(ge=1, le=10**4), "env steps"] | None = setting(
        None, "steps that gradients go back through the memory; none: a rollout, or 16 from replay"
    )
    memory_span: EnvSteps | None = setting(None, "how long a new memory keeps things, at most")
    memory_inputs: bool = setting(False, "show the memory the previous action and reward too")
    schedules: Annotated[dict[str, Any] | str, SCHEDULES] | None = setting(
        None, "settings that change in the run, by name: constant, linear, cosine, or 1:0.2 0:0.1"
    )
    xla: bool = setting(True, "compile the training program with XLA")
    async_envs: bool = setting(False, "host loop: run each environment in a separate process")
    env_threads: bool = setting(False, "host loop: a thread for each environment whose steps wait")
    actors: Annotated[int, Meta(ge=1, le=MAX_PROCESSES), "actors"] | None = setting(
        None,
        "host loop: Ray actors, on this machine or others, each with equally many environments; "
        "none: this process",
    )
    env_timeout_seconds: Seconds = setting(
        60.0, "longest constructor, reset or step of an environment in a separate process"
    )
    on_env_fault: Literal["stop", "restart"] = setting(
        "stop",
        "host loop: when an environment raises, or its separate process hangs or ends, stop the run"
        " or make the environment anew",
    )
    on_oom: Literal["stop", "shrink"] = setting("stop", ON_OOM)
    on_nan: Literal["stop", "restart"] = setting("stop", ON_NAN)
    log_interval_env_steps: EnvSteps | None = setting(
        None, "interval between two rows of metrics; none: a fiftieth of the run"
    )
    evaluation_interval_env_steps: EnvSteps | None = setting(
        None, "interval between two evaluations; none: a twentieth of the run"
    )
    evaluation_episodes: Episodes = setting(20, "greedy episodes in each evaluation while training")
    final_evaluation_episodes: Episodes = setting(
        100, "greedy episodes that evaluate the best weights at the end"
    )
    checkpoint_interval_env_steps: EnvSteps | None = setting(
        None, "interval between two checkpoints; none: a fifth of the run"
    )
    tensorboard_tags: Literal["kytolly", "sb3"] = setting(
        "kytolly", "names of the metrics in TensorBoard; sb3: those of Stable-Baselines3"
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
    max_wall_seconds: Seconds | None = setting(
        None, "wall-clock time that ends training and cuts evaluations; none: no such end"
    )
    optimizer = "adam"  # or "radam"
    spectral_norm = False  # of residual kernels; a setting where it may
    layer_norm = False  # the network normalizes between its layers; a setting where it may
    he_normal = False  # normalized layers begin so; else as those without norms
    memory_settings = (  # which decide what a run needs
        "the batches (with as much more gradient_accumulation), num_envs, hidden_units or "
        "replay_capacity"
    )

    def fitted_to(self, spec: EnvSpec, own_network: bool = False) -> RunConfig:
        """The config with a decision where it leaves one to the environment.

        The user's own network normalizes nothing unless the config says so.
        """
        if self.normalize_observations is not None:
            return self
        normalizes = spec.has_real_vectors and not own_network
        return dataclasses.replace(self, normalize_observations=normalizes)

    @property
    def state_units(self) -> int:
        """`S`, numbers of the state of an agent's memory; 0 without one."""
        return self.memory_units * {None: 0, "lstm": 2, "lru": 2}.get(self.memory, 1)

    command = property(lambda cfg: f"kytolly train {cfg.algorithm}")  # None: only in Python

    def in_shorter_texts(self) -> None:
        """None: there are no texts."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.memory is None and any(getattr(self, f"memory_{x}", None) for x in OF_MEMORY):
            from kytolly.config.memory import refuse_without_memory

            refuse_without_memory(self, OF_MEMORY)
        if self.schedules is not None:
            from kytolly.config.schedules import schedules_as_text

            object.__setattr__(self, "schedules", schedules_as_text(self))
        if self.env_threads and (self.async_envs or self.on_env_fault == "restart"):
            other = "async_envs" if self.async_envs else "on_env_fault restart"
            raise ValueError(f"env_threads and {other} are set, expected one. Leave one out.")
        if self.async_envs and self.num_envs > MAX_PROCESSES:
            raise ValueError(
                f"num_envs is {self.num_envs} with async_envs, which starts a process for each, "
                f"expected at most {MAX_PROCESSES:,}. Lower num_envs or set async_envs to false."
            )
