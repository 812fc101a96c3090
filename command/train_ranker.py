"""`kytolly train ranker`: trains a re-ranker in a new run, or continues one."""

from __future__ import annotations

import argparse
import json
import sys

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.command.text_options import add_run_options, given_config
from kytolly.config.ranker import RankerConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kytolly train ranker`."""
    parser.description = (
        "Train a network that ranks BM25's best documents anew, choose on dev queries how much it "
        "counts beside BM25, and measure the gain on test queries. Settings come from the "
        "defaults, then from --config, then from the flags."
    )
    add = parser.add_argument
    add("algorithm", metavar="ranker", help="this kind of model")
    add(
        "--collection",
        metavar="DIR",
        type=path,
        help="folder in the BEIR layout with judgments of train and dev queries, and perhaps test; "
        "builtin; or ir_datasets:NAME",
    )
    add_run_options(parser, RankerConfig)


def run(args: argparse.Namespace) -> int:
    """Train, choose, measure and print."""
    if args.collection is None:
        raise BadInput(
            "--collection is missing: give a folder with corpus.jsonl, queries.jsonl and qrels/."
        )
    cfg = given_config(args, RankerConfig)
    prepare_machine(cfg)
    from kytolly.text.train_ranker import train_ranker

    summary, lines = train_ranker(
        cfg, args.collection, args.resume or args.log_dir, resume=bool(args.resume)
    )
    if args.json:
        print("\n".join(lines), file=sys.stderr)
        print(json.dumps(summary))
    else:
        print("\n".join([*lines, f"Run: {summary['run_dir']}"]))
    return 0
