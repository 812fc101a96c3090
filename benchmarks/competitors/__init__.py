"""Other libraries doing the same work, each a program that prints one JSON object.

Every program here runs the competitor's own, unmodified algorithm on CartPole-v1 with settings
from one shared command line, times its steady state only, and prints the result as the last
line of standard output::

    python -m benchmarks.competitors.sb3_dqn --env-steps 20000 --batch-size 128
    python -m benchmarks.competitors.rejax_dqn --env-steps 200000
    python -m benchmarks.competitors.purejaxrl_dqn --checkout PATH --env-steps 200000
    python -m benchmarks.competitors.jax_update --updates 20000

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What all competitors are asked to do; the defaults are the first row of the speed table."""

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
        for name in (
            "env_steps",
            "num_envs",
            "batch_size",
            "train_interval",
            "buffer",
            "target_sync_updates",
            "warmup_env_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1.")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError("--hidden needs at least one layer, each of at least 1 unit.")
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
    "batch_size": "rows per update",
    "train_interval": "env steps per update",
    "buffer": "rows in the replay buffer",
    "hidden": "units per hidden layer",
    "learning_rate": "of Adam",
    "target_sync_updates": "updates between two hard copies to the target network",
    "warmup_env_steps": "env steps before the first update; exploration decays meanwhile",
    "gamma": "discount per env step",
    "epsilon_final": "exploration after the warm-up",
    "max_grad_norm": "gradient clipping, where the competitor clips",
    "seed": "of every random draw",
}


def make_parser(
    program: str, doc: str | None, flags: Iterable[str] = tuple(HELP), **defaults: Any
) -> argparse.ArgumentParser:
    """Make a command line with one flag per field of `Settings`.

    Args:
        program: Name of the module.
        doc: Its docstring, whose first line becomes the description.
        flags: The fields that this program uses; the others get no flag.
        **defaults: Values that differ from the defaults of `Settings`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.competitors.{program}",
        description=(doc or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    for name in flags:
        default = defaults.get(name, getattr(Settings, name))
        kind = units if isinstance(default, tuple) else type(default)
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=kind, default=shown, help=HELP[name]
        )
    return parser


def parse(
    parser: argparse.ArgumentParser, argv: list[str] | None
) -> tuple[Settings, argparse.Namespace]:
    """Read the command line into `Settings` and what the program added of its own.

    Bad settings end the program with status 2 and one line.
    """
    arguments = parser.parse_args(argv)
    names = {field.name for field in dataclasses.fields(Settings)}
    try:
        return Settings(**{n: v for n, v in vars(arguments).items() if n in names}), arguments
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
