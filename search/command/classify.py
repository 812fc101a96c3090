"""`kytolly classify`: the classes of texts in a file, by a trained classifier."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.config.words import path_text


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly classify`."""
    parser.description = (
        "Print a CSV row for each text of FILE: its class, the probability, and the text."
    )
    add = parser.add_argument
    add("run_dir", type=path, metavar="RUN", help="folder of a run of kytolly train classifier")
    add(
        "file",
        type=path,
        metavar="FILE",
        help="texts: .txt with one text in a line, or .csv, .tsv or .jsonl",
    )
    add("--text-column", default="text", help="column, or key, of the text; default: text")
    add("--output", type=path, metavar="OUT", help="file for the rows; default: standard output")


def run(args: argparse.Namespace) -> int:
    """Classify, and print or write the rows."""
    from kytolly.search.text.labeled_texts import read_texts

    if args.output is not None and os.path.isfile(args.output):
        raise BadInput(
            f"{path_text(args.output)} exists, expected a new file: choose another --output, or "
            "remove it first."
        )
    texts = read_texts(Path(args.file), args.text_column)
    prepare_machine()
    from kytolly.record.files import write_output
    from kytolly.search.text.classification_report import csv_text
    from kytolly.search.text.classifier import TextClassifier

    predictions = TextClassifier.load(args.run_dir).predict(texts)
    rows = [
        (one.label, f"{one.probability:.4f}", text)
        for one, text in zip(predictions, texts, strict=True)
    ]
    table = csv_text([("class", "probability", "text"), *rows])
    if args.output is not None:
        write_output(
            Path(args.output), lambda to: to.write_text(table, encoding="utf-8", newline="")
        )
    if args.json:
        counts = dict.fromkeys(sorted({one.label for one in predictions}), 0)
        for one in predictions:
            counts[one.label] += 1
        print(json.dumps({"texts": len(texts), "classes": counts, "run_dir": args.run_dir}))
    elif args.output is None:
        sys.stdout.write(table)
    else:
        print(f"Wrote {len(texts)} rows to {args.output}.")
    return 0
