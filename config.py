"""Every number and name that somebody may want to change between two runs.

Frozen dataclasses that refuse early, and YAML in and out. Imports no TensorFlow, so that
`kytolly --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from pathlib import Path
from typing import Any

import yaml


def setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that knows its help text, its unit and its range."""
    metadata = {"help": help, "unit": unit, "choices": choices}
    limits = {"at_least": at_least, "at_most": at_most, "above": above}
    metadata |= {name: limit for name, limit in limits.items() if limit is not None}
    return dataclasses.field(default=default, metadata=metadata)


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


# Settings that solve a task within its published number of env steps; the flags of the command
# line and the keys of a configuration file win over them.
TUNED: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"evaluation_episodes": 100},
    "Acrobot-v1": {
        "total_env_steps": 100_000,
        "learning_rate": 1e-3,
        "updates_per_interval": 16,
        "target_sync_updates": 200,
        "n_step": 5,
        "exploration_env_steps": 12_000,
        "epsilon_final": 0.1,
        "evaluation_episodes": 200,
    },
    "MountainCar-v0": {
        "total_env_steps": 120_000,
        "gamma": 0.98,
        "train_interval_env_steps": 16,
        "updates_per_interval": 8,
        "target_sync_updates": 300,
        "n_step": 3,
        "exploration_env_steps": 24_000,
        "epsilon_final": 0.07,
        "evaluation_interval_env_steps": 2_400,
        "evaluation_episodes": 200,
    },
    "LunarLander-v3": {
        "total_env_steps": 100_000,
        "learning_rate": 6e-4,
        "hidden_units": (256, 128),
        "target_sync_updates": 250,
        "n_step": 3,
        "replay_capacity": 100_000,
        "exploration_env_steps": 12_000,
        "epsilon_final": 0.05,
        "evaluation_episodes": 20,
    },
}


def tuned_settings(algorithm: str, env: str) -> dict[str, Any]:
    """The fields in which this project's settings for a task differ from the defaults.

    Args:
        algorithm: "dqn" or "ddqn"; they share their settings.
        env: Gymnasium id.
    """
    return dict(TUNED.get(env, {})) if algorithm in ("dqn", "ddqn") else {}


def check_fields(config: Any) -> None:
    """Refuse a value of the wrong type or out of range; ValueError names the field."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        object.__setattr__(config, field.name, converted(field.name, value, hints[field.name]))
        _check_range(field, getattr(config, field.name))


def converted(name: str, value: Any, hint: Any) -> Any:
    """`value` as the annotated type, where that loses nothing; else a ValueError."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        if isinstance(value, (list, tuple)) and value:
            return tuple(converted(name, item, typing.get_args(hint)[0]) for item in value)
    elif hint is bool:
        if isinstance(value, bool):
            return value
    elif hint is int:
        whole = isinstance(value, (int, float)) and not isinstance(value, bool)
        if whole and float(value).is_integer():
            return int(value)
    elif hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and math.isfinite(value):
            return float(value)
    elif isinstance(value, hint):
        return value
    expected = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
    raise ValueError(
        f"{name} is {value!r}, expected {expected.get(hint, 'a non-empty list of whole numbers')}."
    )


def _check_range(field: dataclasses.Field, value: Any) -> None:
    if value is None:
        return
    meta, unit = field.metadata, field.metadata.get("unit", "")
    if meta.get("choices") and value not in meta["choices"]:
        near = difflib.get_close_matches(str(value), meta["choices"], 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{field.name} is {value!r}, expected one of {', '.join(meta['choices'])}.{hint}"
        )
    for number in value if isinstance(value, tuple) else (value,):
        for limit, wrong, words in (
            ("at_least", lambda a, b: a < b, "at least"),
            ("at_most", lambda a, b: a > b, "at most"),
            ("above", lambda a, b: a <= b, "above"),
        ):
            if limit in meta and wrong(number, meta[limit]):
                raise ValueError(
                    f"{field.name} is {number}, expected {words} {meta[limit]} {unit}".rstrip()
                    + ". Change it."
                )


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
