"""`kytolly search`: what BM25, the new query and a re-ranker find, one beside the other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.search.command.query_options import add_query_options, check_query_options

if TYPE_CHECKING:
    from kytolly.search.chain import ChainResult
    from kytolly.search.reformulate.result import Hit

WIDTH = 100  # characters of a line
GAP = 2  # between two columns


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly search`."""
    parser.description = (
        "Print the best documents under BM25, under the query that an agent made of it, and as a "
        "re-ranker orders them."
    )
    add_query_options(
        parser, "folder of a run of train_optimized.py, or of kytolly train ranker for its search"
    )
    add = parser.add_argument
    add("--ranker", type=path, metavar="RUN", help="folder of a run of kytolly train ranker")
    add(
        "--classifier",
        type=path,
        metavar="RUN",
        help="folder of a run of kytolly train classifier, which names the class of the query",
    )


def run(args: argparse.Namespace) -> int:
    """Search for one query or a file of them, and print or write what is found."""
    check_query_options(args)
    query: str = args.query or ""
    if args.queries is None and not query.strip():
        raise BadInput("the query is empty, expected at least one word: give its text.")
    prepare_machine()
    from kytolly.search.chain import SearchChain, search_file

    chain = SearchChain.load(args.run_dir, args.collection, args.fusion, args.ranker, args.language)
    if args.queries is not None:
        result = search_file(chain, args.queries, args.run_file, args.top or 1000)
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in result.items()]
    else:
        result_of_query = chain.search([query], args.top or 10)[0]
        texts = dict(zip(chain.collection.doc_ids, chain.collection.texts, strict=True))
        result, lines = result_of_query.as_dict(), list(table_lines(result_of_query, texts))
        if chain.ranker:
            result["weight"] = chain.weight
            if not chain.weight:
                lines += ["The re-ranker has the weight 0: nothing says that it helps here."]
        if args.classifier is not None:
            result["class"], line = query_class(args.classifier, query)
            lines.insert(1, line)
    result["run_dir"] = args.run_dir
    print(json.dumps(result) if args.json else "\n".join(lines))
    return 0


def query_class(run_dir: str, query: str) -> tuple[dict[str, Any], str]:
    """The predicted class of a query, and a line that says so."""
    from kytolly.search.text.classifier import TextClassifier

    prediction = TextClassifier.load(run_dir).predict([query])[0]
    line = f"Class: {prediction.label} (probability {prediction.probability:.2f})"
    return {"label": prediction.label, "probability": prediction.probability}, line


def table_lines(result: ChainResult, texts: dict[str, str]) -> Iterator[str]:
    """The query, what the agent changed, and a column for each search, for a reader.

    Args:
        result: What `SearchChain.search` found.
        texts: Document id -> text.
    """
    yield f"Query: {result.text}"
    if (query := result.reformulation) is not None:
        changes = [f"+ {term.surface} ^{term.weight:.2f}" for term in query.added]
        changes += [f"- {term.surface} ^{term.weight:.2f}" for term in query.lowered]
        yield from folded_lines("Terms: ", changes or [f"unchanged, {query.reason}"])
    names, columns = list(result.columns), list(result.columns.values())
    if not any(columns):
        yield "No document is found."
        return
    numbers = len(str(max(map(len, columns))))
    wide = (WIDTH - numbers) // len(columns) - GAP
    yield ""
    yield row_line(" " * numbers, names, wide)
    for place in range(max(map(len, columns))):
        cells = []
        for column, before in zip(columns, [None, *columns], strict=False):
            cells.append(cell(column[place], before, place, texts) if place < len(column) else "")
        yield row_line(f"{place + 1:>{numbers}}", cells, wide)
    if len(columns) > 1:
        yield ""
        yield "Signs compare with the column to the left: ^ higher, v lower, * new, = same place."


def cell(hit: Hit, before: Sequence[Hit] | None, place: int, texts: dict[str, str]) -> str:
    """A document's move since the search before, if there is one, its id, and its text."""
    text = f"[{hit.doc_id}] {' '.join(texts[hit.doc_id].split())}"
    if before is None:
        return text
    places = {one.doc_id: at for at, one in enumerate(before)}
    was = places.get(hit.doc_id)
    sign = "*" if was is None else "=" if was == place else "^" if was > place else "v"
    return f"{sign} {text}"


def row_line(number: str, cells: Sequence[str], wide: int) -> str:
    """One line of the table; cells that are too long are cut."""
    shown = [one if len(one) <= wide else f"{one[: wide - 2]}.." for one in cells]
    return (number + "".join(" " * GAP + one.ljust(wide) for one in shown)).rstrip()


def folded_lines(begin: str, parts: Sequence[str]) -> Iterator[str]:
    """Parts in lines that are not too long."""
    line, indent = begin, " " * len(begin)
    for part in parts:
        if len(line) + len(part) > WIDTH and line.strip() not in ("", begin.strip()):
            yield line.rstrip()
            line = indent
        line += part + "   "
    yield line.rstrip()
