"""A program that measures: its command line, its clocks, and the JSON object that it prints last.

A module of this room has a table of `Program`s and hands it to `run_programs`. Our programs and the
competitors' share this file, which imports neither TensorFlow nor what it measures.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import time
import types
import typing
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from kytolly.machine.hardware import usable_cores

Result: TypeAlias = dict[str, Any]  # the JSON object of a program; `make_result` says its names


class Program(NamedTuple):
    """One thing that a module can measure.

    Attributes:
        run: Gets an instance of each of `kinds`; returns what is printed.
        kinds: Dataclasses. Each field is a flag, and has a help text.
        defaults: Values of fields that differ from those of the dataclasses.
        unused: Fields that this program does not heed: they get no flag.
    """

    run: Callable[..., Result]
    kinds: tuple[type, ...]
    defaults: Mapping[str, object] = types.MappingProxyType({})
    unused: frozenset[str] = frozenset()


def run_programs(
    programs: Mapping[str, Program], doc: str | None, argv: list[str] | None = None
) -> int:
    """Run the program that the first word of the command line names, and print its result.

    Bad settings end it with status 2 and one line.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="program", metavar="PROGRAM", required=True)
    for name, program in programs.items():
        command = commands.add_parser(
            name, formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
        )
        add_flags(command, program)
    given = vars(parser.parse_args(argv))
    return print_run(programs[given["program"]], given)


def run_program(program: Program, doc: str | None, argv: list[str] | None = None) -> int:
    """The same for a module with one program, which needs no name."""
    parser = argparse.ArgumentParser(
        description=(doc or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add_flags(parser, program)
    return print_run(program, vars(parser.parse_args(argv)))


def print_run(program: Program, given: Mapping[str, object]) -> int:
    """Run a program with the values of its flags, and print its result."""
    try:
        settings = [kind(**shared_fields(kind, given)) for kind in program.kinds]
    except ValueError as error:
        refuse(str(error))
    print_result(program.run(*settings))
    return 0


def add_flags(parser: argparse.ArgumentParser, program: Program) -> None:
    """Add a flag for each field that the program heeds."""
    for kind in program.kinds:
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.name not in program.unused:
                default = program.defaults.get(field.name, field.default)
                add_flag(parser, field, hints[field.name], default)


def add_flag(
    parser: argparse.ArgumentParser, field: dataclasses.Field, hint: Any, default: object
) -> None:
    """Add the flag of a field, of which `hint` is the type; without a default it is required."""
    flag = f"--{field.name.replace('_', '-')}"
    text = field.metadata["help"]
    if hint is bool:
        parser.add_argument(flag, action="store_true", help=text)
        return
    required = default is dataclasses.MISSING
    shown = argparse.SUPPRESS if required else default
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        parser.add_argument(flag, choices=choices, required=required, default=shown, help=text)
        return
    read = next(iter(typing.get_args(hint)), hint)  # of `int | None`: int
    if isinstance(default, tuple):
        read, shown = layer_units, ",".join(map(str, default))
    parser.add_argument(flag, type=read, required=required, default=shown, help=text)


def shared_fields(kind: type, values: Mapping[str, object]) -> dict[str, Any]:
    """The values that a dataclass has a field for."""
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: values[name] for name in names if name in values}


def layer_units(text: str) -> tuple[int, ...]:
    """Units of the hidden layers from a text such as `120,84`."""
    return tuple(int(part) for part in text.split(","))


def refuse(message: str) -> NoReturn:
    """End the program with status 2 and one line on standard error."""
    print(" ".join(message.split()), file=sys.stderr)
    raise SystemExit(2)


def require(*names: str) -> list[types.ModuleType]:
    """Import a competitor's packages, or end the program with the command that installs them.

    TensorFlow is kept out of the process first: Stable-Baselines3 imports TensorBoard, which
    imports TensorFlow where it finds it, and PyTorch 2.15 aborts beside TensorFlow 2.21 ("LLVM
    ERROR: inconsistency in registered CommandLine options").
    """
    if "tensorflow" not in sys.modules:
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # an ImportError from here on
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


def versions(*distributions: str) -> dict[str, str]:
    """The installed versions of Python and of these distributions."""
    installed = {name: metadata.version(name) for name in distributions}
    return {"python": ".".join(map(str, sys.version_info[:3])), **installed}


def make_result(
    *,
    name: str,
    versions: dict[str, str],
    env_steps: int | None,
    updates: int,
    span: Span,
    compile_seconds: float,
    settings: Mapping[str, object],
    note: str,
    **more: object,
) -> Result:
    """The measurement in the form that all programs share.

    Args:
        name: The contender.
        versions: Versions of everything that the measurement depends on.
        env_steps: Env steps taken within the span; None where there is no environment.
        updates: Optimizer steps taken within the span, as counted by the contender itself.
        span: The timed steady state.
        compile_seconds: Time spent compiling, outside the span.
        settings: What the contender really ran with.
        note: What was switched off, and where the work differs from what was asked for.
        **more: Numbers that only this contender has.

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


def print_result(result: Result) -> None:
    """Print the result as the last line of standard output."""
    print(json.dumps(result, allow_nan=False, default=str), flush=True)
