"""Every number and name that somebody may want to change between two runs.

Frozen dataclasses that refuse early, and YAML in and out. Imports no TensorFlow, so that
`kytolly --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any

import yaml

from settings import check_fields, setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Settings that every algorithm shares: how long, how many, where, how often to look."""

    total_env_steps: int = setting(
        50_000, "length of training, over all environment copies", unit="env steps", at_least=1
    )
    num_envs: int = setting(1, "environment copies stepped together", unit="copies", at_least=1)
    seed: int = setting(0, "seed of every random draw", at_least=0, at_most=2**31 - 1)
    loop: str = setting(
        "auto",
        "device: the environment is tensor code inside the program; host: Gymnasium steps it",
        choices=("auto", "device", "host"),
    )
    device: str = setting("auto", "where networks, buffer and loop live: auto, cpu, gpu, gpu:N")
    precision: str = setting(
        "auto",
        "number format of the networks' arithmetic; auto: Keras's global policy",
        choices=("auto", "float32", "mixed_float16", "mixed_bfloat16"),
    )
    xla: bool = setting(True, "compile the training program with XLA")
    async_envs: bool = setting(False, "host loop: each environment copy in a process of its own")
    log_interval_env_steps: int | None = setting(
        None,
        "between two rows of metrics; none: a fiftieth of the run",
        unit="env steps",
        at_least=1,
    )
    evaluation_interval_env_steps: int | None = setting(
        None, "between two evaluations; none: a twentieth of the run", unit="env steps", at_least=1
    )
    evaluation_episodes: int = setting(
        20, "greedy episodes of one evaluation during training", unit="episodes", at_least=1
    )
    final_evaluation_episodes: int = setting(
        100, "greedy episodes that judge the best weights at the end", unit="episodes", at_least=1
    )
    checkpoint_interval_env_steps: int | None = setting(
        None, "between two checkpoints; none: a fifth of the run", unit="env steps", at_least=1
    )
    reward_threshold: float | None = setting(
        None, "stop once an evaluation's mean return reaches this", unit="return"
    )
    early_stop_patience: int | None = setting(
        None, "stop after this many evaluations without improvement", unit="evaluations", at_least=1
    )
    early_stop_min_improvement: float = setting(
        0.0, "what counts as an improvement for early stopping", unit="return", at_least=0
    )
    max_wall_seconds: float | None = setting(None, "stop after this time", unit="seconds", above=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def interval(self, name: str, share_of_run: int) -> int:
        """Env steps of the interval field `name`; by default a share of the whole run."""
        own = getattr(self, name)
        return own if own is not None else max(1, self.total_env_steps // share_of_run)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DQNConfig(RunConfig):
    """Settings of the DQN family. A field that counts something names its unit."""

    algorithm: str = setting("dqn", "dqn, or ddqn for double Q-learning", choices=("dqn", "ddqn"))
    network: str = setting(
        "auto",
        "auto: cnn for images, else mlp; dueling: state value plus advantages",
        choices=("auto", "mlp", "dueling", "cnn", "dueling_cnn"),
    )
    hidden_units: tuple[int, ...] = setting(
        (120, 84), "widths of the hidden layers", unit="units", at_least=1
    )
    learning_rate: float = setting(2e-3, "Adam's step size at the start", above=0)
    learning_rate_final: float | None = setting(
        1e-4, "Adam's step size at the end of the run, reached linearly; none: constant", at_least=0
    )
    adam_epsilon: float = setting(1e-7, "added to Adam's denominator (epsilon-hat)", above=0)
    gamma: float = setting(0.99, "discount per env step, not per n-step row", at_least=0, at_most=1)
    n_step: int = setting(1, "rewards summed before bootstrapping", unit="env steps", at_least=1)
    batch_size: int = setting(128, "rows per update", unit="rows", at_least=1)
    replay_capacity: int = setting(50_000, "transitions remembered", unit="rows", at_least=1)
    warmup_env_steps: int = setting(
        1_000, "collected with random actions before the first update", unit="env steps", at_least=1
    )
    train_interval_env_steps: int = setting(
        64,
        "collected between two rounds of updates; rounded to whole steps of all copies",
        unit="env steps",
        at_least=1,
    )
    updates_per_interval: int = setting(
        32, "updates for each train interval", unit="updates", at_least=1
    )
    target_sync_updates: int = setting(
        96, "updates between two changes of the target network", unit="updates", at_least=1
    )
    target_mix: float = setting(
        1.0,
        "share of the online weights in each change; 1 is a hard copy, less is Polyak",
        above=0,
        at_most=1,
    )
    huber_delta: float = setting(1.0, "where the loss turns linear", unit="reward", above=0)
    max_grad_norm: float = setting(10.0, "gradient clipping, over all weights together", above=0)
    epsilon_start: float = setting(
        1.0, "share of random actions after warm-up", at_least=0, at_most=1
    )
    epsilon_final: float = setting(
        0.04, "share of random actions at the end of the schedule", at_least=0, at_most=1
    )
    exploration_env_steps: int = setting(
        7_000, "over which epsilon falls linearly", unit="env steps", at_least=1
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.warmup_env_steps < self.batch_size:
            raise ValueError(
                f"warmup_env_steps ({self.warmup_env_steps}) is below batch_size "
                f"({self.batch_size}): the first update would draw from a buffer smaller than "
                "one batch. Raise the one or lower the other."
            )
        if self.replay_capacity < self.warmup_env_steps:
            raise ValueError(
                f"replay_capacity ({self.replay_capacity}) is below warmup_env_steps "
                f"({self.warmup_env_steps}): warm-up would overwrite itself and never end. "
                "Raise the one or lower the other."
            )
        if self.epsilon_final > self.epsilon_start:
            raise ValueError(
                f"epsilon_final ({self.epsilon_final}) is above epsilon_start "
                f"({self.epsilon_start}): exploration only falls. Swap them."
            )
        rows_in_flight = self.vector_steps_per_interval * self.num_envs
        if rows_in_flight * (1 + self.n_step) > self.replay_capacity:
            raise ValueError(
                f"replay_capacity ({self.replay_capacity}) is too small for {rows_in_flight} rows "
                f"per train interval and n_step {self.n_step}: at least "
                f"{rows_in_flight * (1 + self.n_step)} are needed. Raise replay_capacity or lower "
                "num_envs or train_interval_env_steps."
            )

    @property
    def vector_steps_per_interval(self) -> int:
        """Steps of all copies between two rounds of updates: the train interval, rounded."""
        return max(1, round(self.train_interval_env_steps / self.num_envs))

    @property
    def updates_per_round(self) -> int:
        """Updates after each collection, so that updates per env step stay as configured."""
        collected = self.vector_steps_per_interval * self.num_envs
        share = collected / self.train_interval_env_steps
        return max(1, round(self.updates_per_interval * share))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PPOConfig(RunConfig):
    """Settings of PPO. A rollout is `rollout_steps` env steps of each of `num_envs` copies."""

    algorithm: str = setting("ppo", "ppo", choices=("ppo",))
    total_env_steps: int = setting(
        100_000, "length of training, over all environment copies", unit="env steps", at_least=1
    )
    num_envs: int = setting(8, "environment copies stepped together", unit="copies", at_least=1)
    rollout_steps: int = setting(
        128, "collected in each copy before learning from all", unit="env steps", at_least=1
    )
    epochs: int = setting(4, "passes over a rollout", unit="passes", at_least=1)
    num_minibatches: int = setting(
        4, "parts of a rollout that gradients are computed from", unit="minibatches", at_least=1
    )
    gradient_accumulation: int = setting(
        1, "minibatches whose gradients make one update", unit="minibatches", at_least=1
    )
    learning_rate: float = setting(3e-4, "Adam's step size at the start", above=0)
    learning_rate_final: float | None = setting(
        None, "Adam's step size at the end of the run, reached linearly; none: constant", at_least=0
    )
    adam_epsilon: float = setting(1e-5, "added to Adam's denominator (epsilon-hat)", above=0)
    gamma: float = setting(0.99, "discount per env step", at_least=0, at_most=1)
    gae_lambda: float = setting(0.95, "weight of longer sums in advantages", at_least=0, at_most=1)
    clip_range: float = setting(0.2, "how far a probability ratio may move from 1", above=0)
    clip_range_value: float | None = setting(
        None, "how far a value may move in one rollout's epochs; none: any", unit="reward", above=0
    )
    entropy_coef: float = setting(0.0, "weight of the entropy bonus", at_least=0)
    value_coef: float = setting(0.5, "weight of the value loss", at_least=0)
    max_grad_norm: float = setting(0.5, "gradient clipping, over all weights together", above=0)
    normalize_advantage: bool = setting(True, "bring advantages to mean 0, deviation 1 per update")
    target_kl: float | None = setting(
        None, "end a rollout's epochs once the KL divergence passes 1.5 times this", above=0
    )
    network: str = setting(
        "auto",
        "auto: a convolutional torso for images, dense layers else",
        choices=("auto", "mlp", "cnn"),
    )
    hidden_units: tuple[int, ...] = setting(
        (64, 64), "widths of the hidden layers", unit="units", at_least=1
    )
    activation: str = setting(
        "tanh", "of the hidden layers", choices=("tanh", "relu", "elu", "silu")
    )
    shared_torso: bool = setting(False, "one torso for policy and value instead of one each")
    action_bounds: str = setting(
        "clip",
        "how real actions are kept in their bounds; squash: by a tanh, with its log-probability",
        choices=("clip", "squash"),
    )
    log_std_init: float = setting(0.0, "log standard deviation of real actions at the start")
    state_dependent_std: bool = setting(
        False, "the network, not a weight of its own, gives the standard deviation of real actions"
    )
    noise_correlation: float = setting(
        0.0, "of a real action's noise with that of the step before", at_least=0, at_most=0.9999
    )
    normalize_observations: bool = setting(
        False, "by their running mean and deviation, which the network keeps"
    )
    normalize_rewards: bool = setting(False, "by the running deviation of discounted returns")
    normalized_clip: float = setting(10.0, "largest normalised observation or reward", above=0)

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
                "minibatches. Change the one or the other."
            )
        if self.normalize_advantage and self.rows_per_update < 2:
            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) leaves 1 row per update, which has no "
                "deviation to normalise advantages by. Lower num_minibatches, or set "
                "normalize_advantage to false."
            )

    @property
    def vector_steps_per_interval(self) -> int:
        """Steps of all copies between two times of learning: the rollout."""
        return self.rollout_steps

    @property
    def env_steps_per_rollout(self) -> int:
        """Env steps of all copies between two times of learning."""
        return self.num_envs * self.rollout_steps

    @property
    def updates_per_epoch(self) -> int:
        """Optimiser steps in one pass over a rollout."""
        return self.num_minibatches // self.gradient_accumulation

    @property
    def rows_per_update(self) -> int:
        """Rows behind one optimiser step."""
        return self.env_steps_per_rollout // self.updates_per_epoch

    @property
    def warmup_env_steps(self) -> int:
        """PPO learns from its first rollout on."""
        return 0


ALGORITHMS: dict[str, type] = {"dqn": DQNConfig, "ddqn": DQNConfig, "ppo": PPOConfig}


def nearest_divisors(rows: int, wanted: int) -> str:
    """The divisors of `rows` just below and just above `wanted`, for a message."""
    divisors = [n for n in range(1, rows + 1) if rows % n == 0]
    below = [n for n in divisors if n < wanted][-1:]
    return " or ".join(str(n) for n in below + [n for n in divisors if n > wanted][:1])


def from_mapping(kind: type, values: dict[str, Any]) -> Any:
    """A configuration from field names and values; an unknown name is an error."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{name!r} is not a setting of {kind.__name__}.{hint} "
                f"`kytolly train --help` lists them."
            )
    return kind(**values)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; ValueError where there is none to be read."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): give --config a YAML file that exists."
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} is not YAML text ({reason}): expected lines such as `learning_rate: 0.001`."
        ) from None
    if not isinstance(values, dict) or not values:
        raise ValueError(
            f"{path} holds {'nothing' if values is None else type(values).__name__}, expected "
            "settings, one a line, such as `learning_rate: 0.001`."
        )
    return values


def write_yaml(path: str | Path, config: Any, extra: dict[str, Any]) -> None:
    """Write every field of a configuration, and what else identifies the run, as YAML."""
    values = dataclasses.asdict(config)
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    text = yaml.safe_dump({**extra, "settings": values}, sort_keys=False)
    Path(path).write_text(text, encoding="utf-8")
