"""`kytolly reformulate`: adds weighted terms to search queries, with or without a trained run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from kytolly.command.exits import BadInput
from kytolly.command.options import path, positive, weight
from kytolly.command.start import prepare_machine
from kytolly.retrieval.exports import EXPORTS

PRETRAINED = "pretrained"


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly reformulate`."""
    add = parser.add_argument
    add(
        "run_dir",
        type=path,
        metavar="RUN",
        help=f"folder of a run of train_optimized.py; or {PRETRAINED}, with --collection: the "
        f"network that comes with the package (a folder of that name is ./{PRETRAINED})",
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
    add("--queries", type=path, metavar="FILE", help="many queries: JSON lines with _id and text")
    add("--export", choices=EXPORTS, help="print only the new query, for another search engine")
    add("--field", help="field of its documents, for elasticsearch and fts5; default: text")
    add("--run-file", type=path, metavar="OUT", help="file for their rankings, in TREC's format")


def run(args: argparse.Namespace) -> int:
    """Reformulate one query or a file of them, and print the result."""
    if (args.query is None) == (args.queries is None):
        raise BadInput("expected either the text of a query or --queries FILE: give one of them.")
    if (args.run_file is None) != (args.queries is None):
        raise BadInput("--queries and --run-file belong together: give both or none.")
    if args.run_dir == PRETRAINED and args.collection is None:
        raise BadInput(
            f"{PRETRAINED} needs --collection DIR, the documents to search: give it, or "
            f"./{PRETRAINED} for the run in a folder of that name."
        )
    if args.export is not None and args.query is None:
        raise BadInput("--export prints one query: give its text instead of --queries.")
    if args.field is not None and args.export in (None, "lucene"):
        raise BadInput("--field belongs to --export elasticsearch or fts5: leave it out.")
    prepare_machine()
    from kytolly.reformulation.reformulator import Reformulator, reformulate_file

    if args.run_dir == PRETRAINED:
        reformulator = Reformulator.pretrained(args.collection, args.fusion)
    else:
        reformulator = Reformulator.load(args.run_dir, args.collection, args.fusion)
    if args.queries is None:
        found = reformulator.reformulate(args.query, args.top or 10)
        result, lines = found.as_dict(), found.lines()
        if args.export is not None:
            exported = EXPORTS[args.export](found.words, args.field or "text")
            result["export"] = exported
            lines = [exported if isinstance(exported, str) else json.dumps(exported)]
    else:
        result = reformulate_file(reformulator, args.queries, args.run_file, args.top or 1000)
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in result.items()]
    result["run_dir"] = args.run_dir
    print(json.dumps(result) if args.json else "\n".join(lines))
    return 0
