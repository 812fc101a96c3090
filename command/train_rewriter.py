"""`kytolly train rewriter`: trains a query rewriter in a new run, or continues one."""

from __future__ import annotations

import argparse
import json
import sys

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.command.text_options import add_run_options, given_config
from kytolly.config.rewriter import RewriterConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kytolly train rewriter`."""
    parser.description = (
        "Train a query rewriter: from a query to terms, or texts, of its relevant documents. "
        "Settings come from the defaults, then from --config, then from the flags."
    )
    parser.add_argument("algorithm", metavar="rewriter", help="this kind of model")
    parser.add_argument(
        "--collection",
        metavar="DIR",
        type=path,
        help="folder in the BEIR layout with judgments of train and dev, and perhaps of test; "
        "builtin; or ir_datasets:NAME",
    )
    add_run_options(parser, RewriterConfig)


def run(args: argparse.Namespace) -> int:
    """Train, measure and print."""
    if args.collection is None:
        raise BadInput("--collection is missing: give a folder, such as --collection data/aan.")
    cfg = given_config(args, RewriterConfig)
    prepare_machine(cfg)
    from kytolly.text.train_rewriter import lines, train_rewriter

    summary = train_rewriter(
        cfg, args.collection, args.resume or args.log_dir, resume=bool(args.resume)
    )
    text = "\n".join(lines(summary))
    if args.json:
        print(text, file=sys.stderr)
        print(json.dumps(summary))
    else:
        print(f"{text}\nRun: {summary['run_dir']}")
    return 0
