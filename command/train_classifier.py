"""`kytolly train classifier`: trains a text classifier in a new run, or continues one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import typing
from typing import Any

from kytolly.command.exits import BadInput
from kytolly.command.options import add_field, path
from kytolly.command.start import prepare_machine
from kytolly.config.classifier import ClassifierConfig
from kytolly.config.fields import from_mapping
from kytolly.config.files import read_settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kytolly train classifier`."""
    parser.description = (
        "Train a text classifier, and measure it on texts that training never saw. Settings come "
        "from the defaults, then from --config, then from the flags."
    )
    add = parser.add_argument
    add("algorithm", metavar="classifier", help="this kind of model")
    add(
        "--data",
        metavar="FILE|DIR",
        type=path,
        help="labeled texts: .csv, .tsv or .jsonl; a folder with train, dev and test of such a "
        "kind; or one with a folder of .txt files for each class",
    )
    add("--config", metavar="FILE", type=path, help="YAML file with settings")
    add("--log-dir", metavar="DIR", type=path, help="folder of the run; default: a new one")
    add("--resume", metavar="RUN", type=path, help="continue the run in this folder")
    for field, hint in config_fields().values():
        add_field(parser, field, hint)


def config_fields() -> dict[str, tuple[dataclasses.Field, Any]]:
    """Fields of the config, and their types, by name."""
    hints = typing.get_type_hints(ClassifierConfig, include_extras=True)
    fields = {
        field.name: (field, hints[field.name]) for field in dataclasses.fields(ClassifierConfig)
    }
    fields.pop("algorithm")
    return fields


def run(args: argparse.Namespace) -> int:
    """Train, measure and print."""
    if args.data is None:
        raise BadInput("--data is missing: give a file of labeled texts, such as --data a.csv.")
    cfg = given_config(args)
    prepare_machine(cfg)
    from kytolly.text.train_classifier import train_classifier

    summary, lines = train_classifier(
        cfg, args.data, args.resume or args.log_dir, resume=bool(args.resume)
    )
    if args.json:
        print("\n".join(lines), file=sys.stderr)
        print(json.dumps(summary))
    else:
        print("\n".join([*lines, f"Run: {summary['run_dir']}"]))
    return 0


def given_config(args: argparse.Namespace) -> ClassifierConfig:
    """The config that the command line asks for; of a run that continues, its own."""
    if args.resume and (args.log_dir or args.config):
        raise BadInput(
            "--resume continues in the run's own folder with its own settings. Leave --log-dir and "
            "--config out, and give flags for what shall change."
        )
    flags = {name: value for name, value in vars(args).items() if name in config_fields()}
    settings: dict[str, Any] = {}
    if args.resume:
        from kytolly.record.run_folder import RunFolder

        settings = RunFolder.existing(args.resume).read_config().settings
    elif args.config:
        settings = read_settings(args.config)[0]
    found = settings.get("algorithm", args.algorithm)
    if found != args.algorithm:
        raise BadInput(f"this is classifier, and those are settings of {found}: give others.")
    return from_mapping(ClassifierConfig, {**settings, **flags})
