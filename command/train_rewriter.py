"""`kytolly train rewriter`: trains a query rewriter in a new run, or continues one."""

from __future__ import annotations

import argparse

from kytolly.command.text_options import add_training_options, run_training
from kytolly.config.rewriter import RewriterConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kytolly train rewriter`."""
    add_training_options(
        parser,
        RewriterConfig,
        "Train a query rewriter: from a query to terms, or texts, of its relevant documents.",
        "--collection",
        metavar="DIR",
        help="folder in the BEIR layout with judgments of train and dev, and perhaps of test; "
        "builtin; or ir_datasets:NAME",
    )


def run(args: argparse.Namespace) -> int:
    """Train, measure and print."""
    missing = "--collection is missing: give a folder, such as --collection data/aan."
    train = "kytolly.text.train_rewriter:train_rewriter"
    return run_training(args, RewriterConfig, args.collection, missing, train)
