"""Options, checks and results that the commands which search with a run share."""

from __future__ import annotations

import argparse

from kytolly.command.exits import BadInput
from kytolly.command.options import as_number, path, positive
from kytolly.config.words import value_text

PRETRAINED = "pretrained"
MAX_WEIGHT = 1_000  # as `fusion` in the options of query reformulation


def weight(text: str) -> float:
    """A number from 0 to `MAX_WEIGHT`."""
    given = as_number(text)
    if isinstance(given, str) or not 0 <= given <= MAX_WEIGHT:
        raise argparse.ArgumentTypeError(
            f"{value_text(text)} was found, expected a number from 0 to {MAX_WEIGHT:,}"
        )
    return float(given)


def add_query_options(parser: argparse.ArgumentParser, runs: str) -> None:
    """Add the options of a command that takes a query, or a file of them.

    Args:
        parser: Of the command.
        runs: What its run may be, for its help.
    """
    add = parser.add_argument
    add(
        "run_dir",
        type=path,
        metavar="RUN",
        help=f"{runs}; or {PRETRAINED}, with --collection: the network that comes with the package "
        f"(a folder of that name is ./{PRETRAINED})",
    )
    add("query", nargs="?", metavar="QUERY", help="text of one query")
    add("--top", type=positive, help="documents in a ranking; default: 10, in a run file 1000")
    add(
        "--collection",
        type=path,
        metavar="DIR",
        help="other documents than those of the run, builtin, or ir_datasets:NAME",
    )
    add(
        "--fusion",
        type=weight,
        metavar="X",
        help="weight of the cosines of embeddings beside BM25; default: that of the run; 0: BM25 "
        "alone, for engines without embeddings",
    )
    add(
        "--language",
        metavar="NAME",
        help="language of the documents, one of Snowball's stemmers, none, or auto to detect it; "
        f"default: that of the run, with {PRETRAINED} auto",
    )
    add("--queries", type=path, metavar="FILE", help="many queries: JSON lines with _id and text")
    add(
        *("--run-file", "--out"),
        type=path,
        metavar="OUT",
        help="file for their rankings, in TREC's format",
    )


def check_query_options(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    if (args.query is None) == (args.queries is None):
        raise BadInput("expected either the text of a query or --queries FILE: give one of them.")
    if (args.run_file is None) != (args.queries is None):
        raise BadInput("--queries and --run-file belong together: give both or none.")
    if args.run_dir == PRETRAINED and args.collection is None:
        raise BadInput(
            f"{PRETRAINED} needs --collection DIR, the documents to search: give it, or "
            f"./{PRETRAINED} for the run in a folder of that name."
        )
