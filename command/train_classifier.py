"""`kytolly train classifier`: trains a text classifier in a new run, or continues one."""

from __future__ import annotations

import argparse
import json
import sys

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.command.text_options import add_run_options, given_config
from kytolly.config.classifier import ClassifierConfig


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
    add_run_options(parser, ClassifierConfig)


def run(args: argparse.Namespace) -> int:
    """Train, measure and print."""
    if args.data is None:
        raise BadInput("--data is missing: give a file of labeled texts, such as --data a.csv.")
    cfg = given_config(args, ClassifierConfig)
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
