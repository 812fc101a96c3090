"""Options that say which environment: its arguments and its wrappers."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import yaml

from kytolly.command.options import Repeatable
from kytolly.config.files import SettingsLoader
from kytolly.config.words import value_text

if TYPE_CHECKING:
    from kytolly.deployment.trained_run import TrainedRun

# Packages that several distributions share: they have no `__init__.py`, so that Python prefers a
# module of the same name, wherever it lies.
NAMESPACES = ("backports", "google", "mpl_toolkits")


def argument(text: str) -> dict[str, Any]:
    """An argument of an environment, KEY=VALUE; the value is YAML."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected a name and a value, as in size=8"
        )
    try:
        return {name: yaml.load(value, SettingsLoader)}
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise argparse.ArgumentTypeError(f"the value of {name} is not YAML ({reason})") from None


def add_environment_options(parser: argparse.ArgumentParser) -> None:
    """Add `--env-kwargs` and `--wrapper`, which can be given several times."""
    parser.add_argument(
        "--env-kwargs",
        metavar="KEY=VALUE",
        type=argument,
        action=Repeatable,
        default=argparse.SUPPRESS,
        help="an argument of the environment, its value in YAML; repeatable",
    )
    parser.add_argument(
        "--wrapper",
        metavar="MODULE:CLASS[(ARGUMENTS)]",
        dest="wrappers",
        action=Repeatable,
        default=argparse.SUPPRESS,
        help="a wrapper of the environment, the innermost first; its arguments are plain values, "
        "as in 'gymnasium.wrappers:FrameStackObservation(4)'; repeatable",
    )


def played_environment(
    args: argparse.Namespace, run: TrainedRun
) -> tuple[str, dict[str, Any], list[str]]:
    """Name, arguments and wrappers of what to play in: those that are given, else the run's own.

    The modules that these name can be imported from the current folder afterwards.

    Args:
        args: With `env` and `trust`, and the options that `add_environment_options` adds.
        run: What plays.

    Raises:
        ValueError: The run names a module, which is neither given nor trusted.
    """
    folder, saved, cfg = run
    name = args.env or folder.trusted_environment(saved, trust=args.trust)
    wrappers = getattr(args, "wrappers", None) or folder.trusted_wrappers(saved, args.trust)
    import_from_here(name, *wrappers)
    return name, (cfg.env_kwargs or {}) | getattr(args, "env_kwargs", {}), wrappers


def import_from_here(*names: str) -> None:
    """Let Python find the modules that the user names in the current folder, if nowhere else.

    The folder may be a stranger's, with files of any name: it comes last, and for such a name only.
    A module there would hide one of `NAMESPACES`, so these are imported before.

    Args:
        *names: Environments and wrappers that the user gave or trusts; most name no module.
    """
    paths = [name.partition("(")[0] for name in names]
    modules = {path.rpartition(":")[0].strip().partition(".")[0] for path in paths}
    is_needed = any(module and not is_found(module) for module in modules)
    if is_needed and os.getcwd() not in sys.path:
        for name in NAMESPACES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        sys.path.append(os.getcwd())


def is_found(module: str) -> bool:
    """True where Python finds a module, which is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it is imported, and does not say from where
        return True
