"""`kytolly reformulate`: adds terms to search queries with a run of train_optimized.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from kytolly.command.exits import BadInput
from kytolly.command.options import path, positive
from kytolly.command.start import prepare_machine


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly reformulate`."""
    add = parser.add_argument
    add("run_dir", type=path, metavar="RUN", help="folder of the run")
    add("query", nargs="?", metavar="QUERY", help="text of one query")
    add("--top", type=positive, help="documents in a ranking; default: 10, in a run file 1000")
    add(
        "--collection",
        type=path,
        metavar="DIR",
        help="other documents than those of the run, or builtin",
    )
    add("--queries", type=path, metavar="FILE", help="many queries: JSON lines with _id and text")
    add("--run-file", type=path, metavar="OUT", help="file for their rankings, in TREC's format")


def run(args: argparse.Namespace) -> int:
    """Reformulate one query or a file of them, and print the result."""
    if (args.query is None) == (args.queries is None):
        raise BadInput("expected either the text of a query or --queries FILE: give one of them.")
    if (args.run_file is None) != (args.queries is None):
        raise BadInput("--queries and --run-file belong together: give both or none.")
    prepare_machine()
    from kytolly.reformulation.reformulator import Reformulator, reformulate_file

    reformulator = Reformulator.load(args.run_dir, args.collection)
    if args.queries is None:
        found = reformulator.reformulate(args.query, args.top or 10)
        result, lines = found.as_dict(), found.lines()
    else:
        result = reformulate_file(reformulator, args.queries, args.run_file, args.top or 1000)
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in result.items()]
    result["run_dir"] = args.run_dir
    print(json.dumps(result) if args.json else "\n".join(lines))
    return 0
