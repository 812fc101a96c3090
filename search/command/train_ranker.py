"""`kytolly train ranker`: trains a re-ranker in a new run, or continues one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.search.command.text_options import add_training_options, run_training
from kytolly.search.config.ranker import RankerConfig


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly train ranker`."""
    add_training_options(
        parser,
        RankerConfig,
        "Train a network that ranks a search's best documents anew, choose on dev queries how much "
        "it counts beside the search, and measure the gain on test queries.",
        "--collection",
        metavar="DIR",
        help="folder in the BEIR layout with judgments of train and dev queries, and perhaps test; "
        "builtin; or ir_datasets:NAME",
    )


def run(args: argparse.Namespace) -> int:
    """Train, choose, measure and print."""
    missing = "--collection is missing: give a folder with corpus.jsonl, queries.jsonl and qrels/."
    train = "kytolly.search.ranker_training:train_ranker"
    return run_training(args, RankerConfig, args.collection, missing, train)
