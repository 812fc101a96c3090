"""Other libraries doing the same work, each a program that prints one JSON object.

Every program here runs the competitor's own, unmodified algorithm on CartPole-v1 with settings
from one shared command line, times its steady state only, and prints the result as the last
line of standard output::

    python -m kytolly.benchmarks.competitors.sb3_dqn --env-steps 20000 --batch-size 128
    python -m kytolly.benchmarks.competitors.rejax_dqn --env-steps 200000
    python -m kytolly.benchmarks.competitors.purejaxrl_dqn --checkout PATH --env-steps 200000
    python -m kytolly.benchmarks.competitors.jax_update --updates 20000
    python -m kytolly.benchmarks.competitors.sb3_ppo --env-steps 20000
    python -m kytolly.benchmarks.competitors.rejax_ppo --env-steps 200000
    python -m kytolly.benchmarks.competitors.purejaxrl_ppo --checkout PATH --env-steps 200000

Nothing here imports TensorFlow, so that a competitor shares its process with nobody.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from types import ModuleType
from typing import Any, NoReturn

ACTIVATIONS = ("tanh", "relu")


def refuse_empty(settings: Settings | PPOSettings, *counts: str) -> None:
    """Raise ValueError where one of the named counts, or the network, is empty."""
    for name in counts:
        if getattr(settings, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1.")
    if not settings.hidden or min(settings.hidden) < 1:
        raise ValueError("--hidden needs at least one layer, each of at least 1 unit.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What DQN is asked to do everywhere; the defaults are the first row of its speed table."""

    env_steps: int = 100_000  # steady-state env steps to time
    num_envs: int = 1  # environment copies
    batch_size: int = 128  # rows per update
    train_interval: int = 10  # env steps per update
    buffer: int = 10_000  # rows in the replay buffer
    hidden: tuple[int, ...] = (120, 84)  # units per hidden layer
    learning_rate: float = 2.5e-4  # Adam's
    target_sync_updates: int = 50  # updates between two hard copies to the target network
    warmup_env_steps: int = 1_000  # collected before the first update; exploration decays here
    gamma: float = 0.99  # discount per env step
    epsilon_final: float = 0.05  # exploration after the warm-up
    max_grad_norm: float = 10.0  # where the competitor clips gradients
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings for which a competitor would do less work than its figure says."""
        refuse_empty(
            self,
            "env_steps",
            "num_envs",
            "batch_size",
            "train_interval",
            "buffer",
            "target_sync_updates",
            "warmup_env_steps",
        )
        if self.train_interval % self.num_envs:
            raise ValueError(
                f"--train-interval ({self.train_interval}) counts env steps and is not a multiple "
                f"of --num-envs ({self.num_envs}): an update cannot fall inside a vector step."
            )
        if self.warmup_env_steps < self.batch_size:
            raise ValueError(
                f"--warmup-env-steps ({self.warmup_env_steps}) is below --batch-size "
                f"({self.batch_size}): the first update would draw from less than one batch."
            )
        if self.buffer < self.warmup_env_steps:
            raise ValueError(
                f"--buffer ({self.buffer}) holds less than --warmup-env-steps "
                f"({self.warmup_env_steps}): raise the one or lower the other."
            )

    @property
    def target_sync_env_steps(self) -> int:
        """Env steps between two target copies, for libraries that count them in env steps."""
        return self.target_sync_updates * self.train_interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """What PPO is asked to do everywhere; the defaults are the first row of its speed table."""

    env_steps: int = 100_000  # steady-state env steps to time
    num_envs: int = 4  # environment copies
    num_steps: int = 128  # env steps of each copy per rollout
    epochs: int = 4  # passes over a rollout
    minibatches: int = 4  # updates per pass
    hidden: tuple[int, ...] = (64, 64)  # units per hidden layer, of policy and value alike
    activation: str = "tanh"  # of the hidden layers
    learning_rate: float = 2.5e-4  # Adam's, constant
    gamma: float = 0.99  # discount per env step
    gae_lambda: float = 0.95
    clip: float = 0.2  # how far the probability ratio may leave 1
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings for which a competitor would do less work than its figure says."""
        refuse_empty(self, "env_steps", "num_envs", "num_steps", "epochs", "minibatches")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"--activation must be one of {', '.join(ACTIVATIONS)}.")
        if self.rollout_env_steps % self.minibatches:
            raise ValueError(
                f"A rollout of {self.num_envs} copies x {self.num_steps} steps is not a multiple "
                f"of --minibatches ({self.minibatches}): rows would be left over."
            )
        if self.rollout_env_steps < 2 * self.minibatches:
            raise ValueError(
                f"--minibatches ({self.minibatches}) leaves one row in each: advantages are "
                "normalised within a minibatch, and those of a single row become 0."
            )

    @property
    def rollout_env_steps(self) -> int:
        """Env steps of one rollout, over all copies."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_rows(self) -> int:
        """Rows of one update."""
        return self.rollout_env_steps // self.minibatches

    @property
    def whole_env_steps(self) -> int:
        """`env_steps` rounded up to whole rollouts, for PPO takes no part of one."""
        return self.env_steps + -self.env_steps % self.rollout_env_steps


class Span:
    """A stretch of wall time and of this process's CPU time, over all its threads."""

    def __init__(self) -> None:
        self.wall_seconds = 0.0
        self.cpu_seconds = 0.0

    def start(self) -> None:
        """Take the first time stamp."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Take the second time stamp."""
        self.cpu_seconds = time.process_time() - self._cpu
        self.wall_seconds = time.perf_counter() - self._wall

    def __enter__(self) -> Span:
        """Start the span."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the span."""
        self.stop()


def units(text: str) -> tuple[int, ...]:
    """Read `120,84` as the units of the hidden layers."""
    return tuple(int(part) for part in text.split(","))


HELP = {
    "env_steps": "env steps to time",
    "num_envs": "environment copies",
    "num_steps": "env steps of each copy per rollout",
    "epochs": "passes over a rollout",
    "minibatches": "updates per pass",
    "batch_size": "rows per update",
    "train_interval": "env steps per update",
    "buffer": "rows in the replay buffer",
    "hidden": "units per hidden layer",
    "activation": "of the hidden layers: tanh or relu",
    "learning_rate": "of Adam",
    "target_sync_updates": "updates between two hard copies to the target network",
    "warmup_env_steps": "env steps before the first update; exploration decays meanwhile",
    "gamma": "discount per env step",
    "epsilon_final": "exploration after the warm-up",
    "gae_lambda": "decay of the advantage estimate",
    "clip": "how far the probability ratio may leave 1",
    "entropy_coef": "weight of the entropy bonus",
    "value_coef": "weight of the value loss",
    "max_grad_norm": "gradient clipping, where the competitor clips",
    "seed": "of every random draw",
}


def make_parser(
    program: str,
    doc: str | None,
    flags: Iterable[str] | None = None,
    kind: type[Settings] | type[PPOSettings] = Settings,
    **defaults: Any,
) -> argparse.ArgumentParser:
    """Make a command line with one flag per field of the settings.

    Args:
        program: Name of the module.
        doc: Its docstring, whose first line becomes the description.
        flags: The fields that this program uses, or None for all; the others get no flag.
        kind: The settings, which `parse` will return.
        **defaults: Values that differ from the defaults of `kind`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m kytolly.benchmarks.competitors.{program}",
        description=(doc or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(settings_kind=kind)
    for name in flags or [field.name for field in dataclasses.fields(kind)]:
        default = defaults.get(name, getattr(kind, name))
        read = units if isinstance(default, tuple) else type(default)
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=read, default=shown, help=HELP[name]
        )
    return parser


def parse(
    parser: argparse.ArgumentParser, argv: list[str] | None
) -> tuple[Any, argparse.Namespace]:
    """Read the command line into the parser's kind of settings, and what the program added.

    Bad settings end the program with status 2 and one line.
    """
    arguments = parser.parse_args(argv)
    kind = arguments.settings_kind
    names = {field.name for field in dataclasses.fields(kind)}
    try:
        return kind(**{n: v for n, v in vars(arguments).items() if n in names}), arguments
    except ValueError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """End the program with status 2 and one line on standard error."""
    print(" ".join(message.split()), file=sys.stderr)
    raise SystemExit(2)


def require(*names: str) -> list[ModuleType]:
    """Import optional packages, or end the program with the command that installs them."""
    try:
        return [importlib.import_module(name) for name in names]
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {name.partition(".")[0] for name in names}:
            raise
        refuse(
            f"This competitor needs the package {package!r}, which is not installed. "
            f"Install it with: python -m pip install {package.replace('_', '-')}"
        )


def one_done(env: Any) -> Any:
    """A gymnax environment whose `step` returns one `done`, as competitors expect.

    gymnax 1.0 split `done` into `terminated` and `truncated`. It brings the adapter itself, except
    that it cannot be copied, which rejax does.
    """
    try:
        from gymnax.wrappers.compat import LegacyStepAPIWrapper
    except ModuleNotFoundError:  # gymnax before 1.0 needs none
        return env

    class OneDone(LegacyStepAPIWrapper):
        """The adapter, which holds no state, standing for its own copy."""

        def __deepcopy__(self, memo: dict[int, Any]) -> OneDone:
            return self

    return OneDone(env)


def versions(*distributions: str) -> dict[str, str]:
    """Return the installed versions of Python and of these distributions."""
    found = {name: metadata.version(name) for name in distributions}
    return {"python": ".".join(map(str, sys.version_info[:3])), **found}


def usable_cores() -> int:
    """Return how many cores this process may run on, pinning included."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_result(
    *,
    name: str,
    versions: dict[str, str],
    env_steps: int | None,
    updates: int,
    span: Span,
    compile_seconds: float,
    settings: dict[str, Any],
    note: str,
    **more: Any,
) -> dict[str, Any]:
    """Put the measurement into the form that all competitors share.

    Args:
        name: The competitor.
        versions: Of everything that the figure depends on.
        env_steps: Env steps taken within the span; None where there is no environment.
        updates: Optimiser steps taken within the span, as counted by the competitor itself.
        span: The timed steady state.
        compile_seconds: Time spent compiling, outside the span.
        settings: What the competitor really ran with.
        note: What was switched off, and where the work differs from what was asked for.
        **more: Figures that only this competitor has.

    Returns:
        The object that `print_result` prints.
    """
    rate = None if env_steps is None else env_steps / span.wall_seconds
    return {
        "name": name,
        "versions": versions,
        "env_steps": env_steps,
        "updates": updates,
        "wall_seconds": span.wall_seconds,
        "cpu_seconds": span.cpu_seconds,
        "env_steps_per_second": rate,
        "compile_seconds": compile_seconds,
        **more,
        "settings": {**settings, "usable_cores": usable_cores()},
        "note": note,
    }


def print_result(result: dict[str, Any]) -> None:
    """Print the result as the last line of standard output."""
    print(json.dumps(result, allow_nan=False), flush=True)
