"""`kytolly train classifier`: trains a text classifier in a new run, or continues one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.search.command.text_options import add_training_options, run_training
from kytolly.search.config.classifier import ClassifierConfig


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly train classifier`."""
    add_training_options(
        parser,
        ClassifierConfig,
        "Train a text classifier, and measure it on texts that training never saw.",
        "--data",
        metavar="FILE|DIR",
        help="labeled texts: .csv, .tsv or .jsonl; a folder with train, dev and test of such a "
        "kind; or one with a folder of .txt files for each class",
    )


def run(args: argparse.Namespace) -> int:
    """Train, measure and print."""
    missing = "--data is missing: give a file of labeled texts, such as --data a.csv."
    train = "kytolly.search.text.train_classifier:train_classifier"
    return run_training(args, ClassifierConfig, args.data, missing, train)
