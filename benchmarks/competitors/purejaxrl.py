"""PureJaxRL's clone, and its compiled loop called twice."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from kytolly.benchmarks.competitors import Span, make_parser, parse, print_result, refuse
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.settings import PPOSettings, Settings

URL = "https://github.com/luchris429/purejaxrl"


def check_hidden(settings: Settings | PPOSettings, written: tuple[int, ...]) -> None:
    """Refuse other hidden layers than those that are written into PureJaxRL's network."""
    given, expected = (",".join(map(str, units)) for units in (settings.hidden, written))
    if given != expected:
        refuse(
            f"--hidden is {given}, but PureJaxRL's network has {expected} units written into it. "
            f"Leave --hidden at {expected}."
        )


def load(
    checkout: pathlib.Path, name: str, packages: tuple[str, ...], fill_in: Callable[[], None]
) -> types.ModuleType:
    """Import a file from a clone of PureJaxRL.

    Args:
        checkout: Folder of the clone.
        name: `dqn` or `ppo`.
        packages: What the file imports.
        fill_in: Called first; it puts modules in the place of those imported without need.
    """
    path = checkout / "purejaxrl" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"purejaxrl_{name}_as_published", path)
    if not path.is_file() or spec is None or spec.loader is None:
        what = f"--checkout {checkout} holds no purejaxrl/{name}.py."
        refuse(f"{what} Give the folder of a clone of {URL}.")
    require(*packages)
    fill_in()
    sys.path.insert(0, str(path.parent))  # for its `wrappers`
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit(checkout: pathlib.Path) -> str:
    """Return the commit of the clone, or `unknown` where git cannot say."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def time_second_call(
    make_train: Callable, config: dict[str, Any], seed: int
) -> tuple[Any, Span, float]:
    """Compile the whole loop, call it twice, and time the second call.

    Returns:
        What the loop returns, the time it took, and the seconds spent compiling.
    """
    (jax,) = require("jax")
    jax.config.update("jax_enable_compilation_cache", False)
    key = jax.random.PRNGKey(seed)
    begin = time.perf_counter()
    train = jax.jit(make_train(config)).lower(key).compile()
    compile_seconds = time.perf_counter() - begin

    jax.block_until_ready(train(key))
    with Span() as span:
        out = jax.block_until_ready(train(key))
    return out, span, compile_seconds


def run_program(
    name: str,
    doc: str | None,
    kind: type[Settings] | type[PPOSettings],
    run: Callable[[Any, pathlib.Path], dict[str, Any]],
    argv: list[str] | None,
) -> int:
    """Read the command line, run, and print the result."""
    parser = make_parser(name, doc, kind=kind, env_steps=200_000)
    parser.add_argument(
        "--checkout",
        type=pathlib.Path,
        required=True,
        default=argparse.SUPPRESS,
        help=f"folder of a clone of {URL}",
    )
    settings, arguments = parse(parser, argv)
    print_result(run(settings, arguments.checkout))
    return 0
