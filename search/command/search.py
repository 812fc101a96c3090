"""`kytolly search`: what BM25, the new query and a re-ranker find, one beside the other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kytolly.command.exits import BadInput
from kytolly.command.options import path
from kytolly.command.start import prepare_machine
from kytolly.search.command.query_options import (
    PRETRAINED,
    add_query_options,
    check_query_options,
)

if TYPE_CHECKING:
    from kytolly.search.chain import ChainResult, SearchChain
    from kytolly.search.reformulate.result import Hit

WIDTH = 100  # characters of a line
GAP = 2  # between two columns
COSINES_ALONE = "No document has a word of the query: the order is that of the cosines alone."


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
    add(
        "--against",
        type=path,
        metavar="RUN",
        help=f"another run, or {PRETRAINED}, whose results for the query stand beside those of RUN",
    )


def run(args: argparse.Namespace) -> int:
    """Search for one query or a file of them, and print or write what is found."""
    check_query_options(args)
    query: str = args.query or ""
    if args.against is not None and (args.queries or args.ranker or args.classifier):
        raise BadInput(
            "--against compares two runs for one query: leave --queries, --ranker and --classifier "
            "out."
        )
    if args.queries is None and not query.strip():
        raise BadInput("the query is empty, expected at least one word: give its text.")
    prepare_machine()
    from kytolly.search.chain import SearchChain, search_file

    chain = SearchChain.load(args.run_dir, args.collection, args.fusion, args.ranker, args.language)
    if args.against is not None:
        result, lines = compared(chain, args, query)
        print(json.dumps(result) if args.json else "\n".join(lines))
        return 0
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


def compared(
    chain: SearchChain, args: argparse.Namespace, query: str
) -> tuple[dict[str, Any], list[str]]:
    """What two runs find for a query, and lines with a column for each.

    Both search the same documents: those of `--collection`, or of the first run.
    """
    from kytolly.search.chain import SearchChain

    documents = args.collection
    if documents is None and chain.agent is not None:
        documents = chain.agent.context.options.collection
    elif documents is None and chain.ranker is not None:
        documents = str(chain.ranker.collection)
    other = SearchChain.load(args.against, documents, args.fusion, None, args.language)
    results = {args.run_dir: chain, args.against: other}
    if len(results) < 2:
        raise BadInput(f"--against names RUN itself, {args.against}: give another run.")
    found = {name: one.search([query], args.top or 10)[0] for name, one in results.items()}
    columns = {name: list(one.columns.values())[-1] for name, one in found.items()}
    terms = {
        name: None if one.reformulation is None else one.reformulation.lucene
        for name, one in found.items()
    }
    lines = [f"Query: {query}"]
    lines += [f"{name}: {text}" for name, text in terms.items() if text is not None]
    texts = dict(zip(chain.collection.doc_ids, chain.collection.texts, strict=True))
    lines += column_lines(list(columns), list(columns.values()), texts)
    if any(one.cosines_alone for one in found.values()):
        lines.append(COSINES_ALONE)
    hits = {name: [hit._asdict() for hit in column] for name, column in columns.items()}
    return {"query": query, "columns": hits, "lucene": terms, "run_dir": args.run_dir}, lines


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
    heads = [column_head(name, result) for name in result.columns]
    yield from column_lines(heads, list(result.columns.values()), texts)
    if result.cosines_alone:
        yield COSINES_ALONE


def column_head(name: str, result: ChainResult) -> str:
    """The head of a search's column: what its order comes from."""
    if name != "reformulated" or result.reformulation is None:
        return name
    query = name if result.reformulation.reason is None else "unchanged"
    return f"{query} + cosines" if result.fusion else query


def column_lines(
    names: Sequence[str], columns: Sequence[Sequence[Hit]], texts: dict[str, str]
) -> Iterator[str]:
    """A column for each search, with signs that compare it with the one to the left.

    Args:
        names: Of the searches.
        columns: The best documents of each.
        texts: Document id -> text.
    """
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
