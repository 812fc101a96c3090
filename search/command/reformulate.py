"""`kytolly reformulate`: adds weighted terms to search queries, with or without a trained run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.search.command.query_options import PRETRAINED, add_query_options, check_query_options
from kytolly.search.index.exports import EXPORTS
from kytolly.search.index.tokens import AUTO


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly reformulate`."""
    add_query_options(parser, "folder of a run of train_optimized.py")
    add = parser.add_argument
    add(
        "--export",
        choices=EXPORTS,
        help="print only the new query, for another search engine, which has no cosines",
    )
    add(
        "--rewriter",
        type=path,
        metavar="RUN",
        help=f"with {PRETRAINED}: run of `kytolly train rewriter`, whose terms are candidates too",
    )
    add("--field", help="field of its documents, for elasticsearch and fts5; default: text")


def run(args: argparse.Namespace) -> int:
    """Reformulate one query or a file of them, and print the result."""
    check_query_options(args)
    if args.export is not None and args.query is None:
        raise BadInput("--export prints one query: give its text instead of --queries.")
    if args.field is not None and args.export in (None, "lucene"):
        raise BadInput("--field belongs to --export elasticsearch or fts5: leave it out.")
    if args.rewriter is not None and args.run_dir != PRETRAINED:
        raise BadInput(
            f"--rewriter goes with {PRETRAINED}: a run has the rewriter that it was trained with. "
            "Leave it out."
        )
    prepare_machine()
    from kytolly.search.reformulate.reformulator import Reformulator, reformulate_file

    fusion = args.fusion
    if args.export is not None and fusion is None:
        fusion = 0.0  # the choice for engines that have no cosines
    if args.run_dir == PRETRAINED:
        language = args.language or AUTO
        reformulator = Reformulator.pretrained(args.collection, fusion, language, args.rewriter)
    else:
        reformulator = Reformulator.load(
            args.run_dir, args.collection, fusion, language=args.language
        )
    if args.queries is None:
        reformulation = reformulator.reformulate(args.query, args.top or 10)
        collection = reformulator.context.collection
        texts = dict(zip(collection.doc_ids, collection.texts, strict=True))
        result, lines = reformulation.as_dict(), reformulation.lines(texts)
        if args.export is not None:
            exported = EXPORTS[args.export](reformulation.exported_words, args.field or "text")
            result["export"] = exported
            lines = [exported if isinstance(exported, str) else json.dumps(exported)]
    else:
        result = reformulate_file(reformulator, args.queries, args.run_file, args.top or 1000)
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in result.items()]
    result["run_dir"] = args.run_dir
    print(json.dumps(result) if args.json else "\n".join(lines))
    return 0
