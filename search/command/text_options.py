"""Options, config and run that the commands which train text models share."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pkgutil
import sys
from typing import Any

from kytolly.command.exits import BadInput
from kytolly.command.options import add_field, add_profile, config_fields, given_settings, path
from kytolly.command.result import write_profile
from kytolly.command.start import prepare_machine
from kytolly.config.fields import from_mapping
from kytolly.config.files import read_settings
from kytolly.search.config.presets import KINDS


def add_training_options(
    parser: argparse.ArgumentParser,
    kind: type,
    does: str,
    source: str,
    name: str | None = None,
    metavar: str | None = None,
    help: str | None = None,
) -> None:
    """Add the options of a command that trains a text model, and a flag for every setting.

    Args:
        parser: Of the command.
        kind: The config's class.
        does: What the command does, for its help.
        source: The flag that says what to learn from.
        name: Of the kind of model; None: that of the config.
        metavar: Of this flag.
        help: Of this flag.
    """
    algorithm = algorithm_of(kind)
    presets = algorithm in KINDS
    before = " then from --preset," if presets else ""
    parser.description = (
        f"{does} Settings come from the defaults,{before} then from --config, then from the flags."
    )
    add = parser.add_argument
    add("algorithm", metavar=name or algorithm, help="this kind of model")
    add(source, type=path, metavar=metavar, help=help)
    add("--config", metavar="FILE", type=path, help="YAML file with settings")
    if presets:
        add("--preset", metavar="NAME", help="memory taken: safe, optimal, aggressive, or auto")
    add("--log-dir", metavar="DIR", type=path, help="folder of the run; default: a new one")
    add("--resume", metavar="RUN", type=path, help="continue the run in this folder")
    add_profile(parser)
    for field, hint in config_fields(kind).values():
        add_field(parser, field, hint)


def run_training(
    args: argparse.Namespace, kind: type, source: str | None, missing: str, train: str
) -> int:
    """Train, measure and print.

    Args:
        args: Of the command.
        kind: The config's class.
        source: What to learn from; None: it was not given.
        missing: What to say then.
        train: "module:name" of what takes config, source, the run's folder and `resume`, and gives
            a summary and lines for a reader. It is imported once TensorFlow is configured.
    """
    if source is None:
        raise BadInput(missing)
    cfg = given_config(args, kind)
    prepare_machine(cfg)
    folder, resume = args.resume or args.log_dir, bool(args.resume)
    callbacks: list[Any] = []
    if args.profile:
        from kytolly.loop.profile import RunKeeper

        callbacks = [RunKeeper()]
    train_model = pkgutil.resolve_name(train)
    summary, lines = train_model(cfg, source, folder, cb=callbacks, resume=resume)
    if args.profile:
        summary, more = write_profile(callbacks[0].state, summary)
        lines = [*lines, *more]
    if args.json:
        print("\n".join(lines), file=sys.stderr)
        print(json.dumps(summary))
    else:
        print("\n".join([*lines, f"Run: {summary['run_dir']}"]))
    return 0


def algorithm_of(kind: type) -> str:
    """The name that a config's class has for its algorithm."""
    return next(str(one.default) for one in dataclasses.fields(kind) if one.name == "algorithm")


def given_config(args: argparse.Namespace, kind: type) -> Any:
    """The config that the command line asks for; of a run that continues, its own."""
    preset = getattr(args, "preset", None)
    if args.resume and (args.log_dir or args.config or preset):
        raise BadInput(
            "--resume continues in the run's own folder with its own settings. Leave --log-dir, "
            "--config and --preset out, and give flags for what shall change."
        )
    flags = given_settings(args, config_fields(kind))
    settings: dict[str, Any] = {}
    if args.resume:
        from kytolly.record.saved_run import SavedRun

        settings = SavedRun.existing(args.resume).read_config().settings
    elif args.config:
        settings = read_settings(args.config)[0]
    algorithm = algorithm_of(kind)
    other = settings.get("algorithm", algorithm)
    if other != algorithm:
        raise BadInput(f"this is {algorithm}, and those are settings of {other}: give others.")
    given = {**settings, **flags}
    if preset is not None:
        from kytolly.search.command.preset import with_text_preset

        given = with_text_preset(preset, given, algorithm)
    return from_mapping(kind, given)
