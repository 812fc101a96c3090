"""Other libraries doing the same work, each a program that prints one JSON object.

Every program here runs the competitor's own, unmodified algorithm on CartPole-v1, PQN on
Breakout, with settings from one shared command line, times its steady state only, and prints the
result as the last line of standard output::

    python -m kytolly.benchmarks.competitors.sb3_dqn --env-steps 20000 --batch-size 128
    python -m kytolly.benchmarks.competitors.rejax_dqn --env-steps 200000
    python -m kytolly.benchmarks.competitors.purejaxrl_dqn --checkout PATH --env-steps 200000
    python -m kytolly.benchmarks.competitors.jax_update --updates 20000
    python -m kytolly.benchmarks.competitors.sb3_ppo --env-steps 20000
    python -m kytolly.benchmarks.competitors.sb3_atari --env-steps 2000
    python -m kytolly.benchmarks.competitors.sb3_acting dqn model.zip --make
    python -m kytolly.benchmarks.competitors.rejax_ppo --env-steps 200000
    python -m kytolly.benchmarks.competitors.purejaxrl_ppo --checkout PATH --env-steps 200000
    python -m kytolly.benchmarks.competitors.rejax_pqn --env-steps 200000

Nothing here imports TensorFlow, and `packages.require` keeps others from importing it: a competitor
shares its process with nobody.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import Any, NoReturn

from kytolly.benchmarks.competitors.settings import AnySettings, Settings

ATARI_GAME = "ALE/Pong-v5"
ATARI: dict[str, Any] = {  # settings in which the comparison on it differs from the defaults
    "batch_size": 32,
    "train_interval": 4,
    "hidden": (512,),
    "learning_rate": 1e-4,
    "target_sync_updates": 250,
}


class Span:
    """Wall time, and CPU time of all threads of this process, of the code inside a `with`."""

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


def random_observations() -> list[Any]:
    """Observations such as CartPole-v1 gives, [4] float32 each."""
    import numpy as np

    return list(np.random.default_rng(0).normal(size=(256, 4)).astype(np.float32))


def time_each(act: Callable[[Any], Any], observations: Sequence[Any], count: int) -> Span:
    """Time `count` calls, each with one of the observations in turn."""
    many = [observations[index % len(observations)] for index in range(count)]
    with Span() as span:
        for obs in many:
            act(obs)
    return span


def acting_result(
    act: Callable[[Any], Any], count: int, moments: tuple[float, float, float], packages: list[str]
) -> dict[str, Any]:
    """Act for the first time, then time `count` actions; the result of a program that acts.

    Args:
        act: One observation -> its action.
        count: How many actions.
        moments: Seconds before the first import, after the last one, and when the agent was loaded.
        packages: Whose versions are in the result.
    """
    start, imported, loaded = moments
    observations = random_observations()
    act(observations[0])
    acted = time.perf_counter()
    span = time_each(act, observations, count)
    return {
        "versions": versions(*packages),
        "observations": count,
        "wall_seconds": span.wall_seconds,
        "cpu_seconds": span.cpu_seconds,
        "load_seconds": loaded - imported,
        "start_seconds": acted - start,
    }


def acting_program(
    description: str | None,
    make: Callable[[str, str], None],
    run: Callable[[str, str, int], dict[str, Any]],
    argv: list[str] | None,
) -> int:
    """The command line of a program that acts: `make` saves an agent, `run` loads and times it."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("algorithm", choices=("dqn", "ppo"))
    parser.add_argument("path", help="file or folder of the agent")
    parser.add_argument("--make", action="store_true", help="save an agent there")
    parser.add_argument("--observations", type=int, default=20_000, help="to act on, one by one")
    args = parser.parse_args(argv)
    if args.make:
        make(args.algorithm, args.path)
        print_result({"path": args.path})
    else:
        print_result(run(args.algorithm, args.path, args.observations))
    return 0


def layer_units(text: str) -> tuple[int, ...]:
    """Read `120,84` as the units of the hidden layers."""
    return tuple(int(part) for part in text.split(","))


HELP = {
    "env_steps": "env steps to time",
    "num_envs": "environments stepped together",
    "num_steps": "env steps of each environment per rollout",
    "epochs": "passes over a rollout",
    "minibatches": "updates per pass",
    "batch_size": "rows per update",
    "train_interval": "env steps per update",
    "buffer": "rows in the replay buffer",
    "hidden": "units per hidden layer",
    "activation": "activation of the hidden layers, tanh or relu",
    "learning_rate": "learning rate of Adam",
    "target_sync_updates": "updates between two hard copies to the target network",
    "warmup_env_steps": "env steps before the first update, while exploration decays",
    "gamma": "discount per env step",
    "epsilon_final": "exploration after the warm-up",
    "gae_lambda": "decay of the advantage estimate",
    "td_lambda": "weight of longer returns in targets",
    "clip": "how far the probability ratio may leave 1",
    "entropy_coef": "weight of the entropy bonus",
    "value_coef": "weight of the value loss",
    "max_grad_norm": "gradient norm above which gradients are clipped, where the competitor clips",
    "seed": "seed of every random draw",
}


def make_parser(
    program: str,
    doc: str | None,
    flags: Iterable[str] | None = None,
    kind: type[AnySettings] = Settings,
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
        read = layer_units if isinstance(default, tuple) else type(default)
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=read, default=shown, help=HELP[name]
        )
    return parser


def parse(
    parser: argparse.ArgumentParser, argv: list[str] | None
) -> tuple[Any, argparse.Namespace]:
    """Read the command line: the settings of the parser's kind, and all options.

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
        versions: Versions of everything that the measurement depends on.
        env_steps: Env steps taken within the span; None where there is no environment.
        updates: Optimizer steps taken within the span, as counted by the competitor itself.
        span: The timed steady state.
        compile_seconds: Time spent compiling, outside the span.
        settings: What the competitor really ran with.
        note: What was switched off, and where the work differs from what was asked for.
        **more: Numbers that only this competitor has.

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
