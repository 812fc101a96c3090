"""`kytolly train rewriter`: trains a query rewriter in a new run, or continues one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.command.options import path
from kytolly.search.command.text_options import add_training_options, run_training
from kytolly.search.config.rewriter import RewriterConfig

FINE_TUNE = "--fine-tune"


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly train rewriter`, and with `--fine-tune` those of PPO."""
    tunes = any(word.split("=")[0] == FINE_TUNE for word in words)
    kind: type = fine_tuning_config() if tunes else RewriterConfig
    does = "Train a query rewriter: from a query to terms, or texts, of its relevant documents."
    add_training_options(
        parser,
        kind,
        "Improve a query rewriter by PPO: the reward is what BM25 gains." if tunes else does,
        "--collection",
        name="rewriter",
        metavar="DIR",
        help="folder in the BEIR layout with judgments of train and dev, and perhaps of test; "
        "builtin; or ir_datasets:NAME",
    )
    if not tunes:
        parser.add_argument(
            FINE_TUNE,
            metavar="RUN",
            type=path,
            help="improve the rewriter of this run by PPO, with other settings: "
            f"`{parser.prog} rewriter {FINE_TUNE} RUN --help`",
        )


def run(args: argparse.Namespace) -> int:
    """Train, measure and print."""
    missing = "--collection is missing: give a folder, such as --collection data/aan."
    if args.fine_tune is not None:
        train = "kytolly.search.text.fine_tune_rewriter:fine_tune_rewriter"
        return run_training(args, fine_tuning_config(), args.collection, missing, train)
    train = "kytolly.search.text.train_rewriter:train_rewriter"
    return run_training(args, RewriterConfig, args.collection, missing, train)


def fine_tuning_config() -> type:
    """The config of PPO, which the other commands that train do not load."""
    from kytolly.search.config.rewriting_ppo import RewritingPPOConfig

    return RewritingPPOConfig
