"""What the commands that train text models have in common: options, and the config they ask for."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from typing import Any

from kytolly.command.exits import BadInput
from kytolly.command.options import add_field, path
from kytolly.config.fields import from_mapping
from kytolly.config.files import read_settings


def add_run_options(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the options of a run, and a flag for every setting of its config."""
    add = parser.add_argument
    add("--config", metavar="FILE", type=path, help="YAML file with settings")
    add("--log-dir", metavar="DIR", type=path, help="folder of the run; default: a new one")
    add("--resume", metavar="RUN", type=path, help="continue the run in this folder")
    for field, hint in config_fields(kind).values():
        add_field(parser, field, hint)


def config_fields(kind: type) -> dict[str, tuple[dataclasses.Field, Any]]:
    """Fields of a config, and their types, by name."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.name: (field, hints[field.name]) for field in dataclasses.fields(kind)}
    fields.pop("algorithm")
    return fields


def given_config(args: argparse.Namespace, kind: type) -> Any:
    """The config that the command line asks for; of a run that continues, its own."""
    if args.resume and (args.log_dir or args.config):
        raise BadInput(
            "--resume continues in the run's own folder with its own settings. Leave --log-dir and "
            "--config out, and give flags for what shall change."
        )
    flags = {name: value for name, value in vars(args).items() if name in config_fields(kind)}
    settings: dict[str, Any] = {}
    if args.resume:
        from kytolly.record.run_folder import RunFolder

        settings = RunFolder.existing(args.resume).read_config().settings
    elif args.config:
        settings = read_settings(args.config)[0]
    found = settings.get("algorithm", args.algorithm)
    if found != args.algorithm:
        raise BadInput(f"this is {args.algorithm}, and those are settings of {found}: give others.")
    return from_mapping(kind, {**settings, **flags})
