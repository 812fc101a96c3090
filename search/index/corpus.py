"""Collections for retrieval: documents, queries and judgments, from a folder or built in.

The folder is in the BEIR layout: `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`,
`text`) and `qrels/<split>.tsv` (`query-id`, `corpus-id`, `score` with a header line).

Source: Thakur et al. 2021, "BEIR", arXiv:2104.08663.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.search.index.builtin import builtin_collection
from kytolly.search.index.collection import BUILTIN, SPLITS, Collection, unknown_split
from kytolly.search.index.dataset_names import dataset_name, load_dataset, split_datasets
from kytolly.search.index.files import NOT_IN_IDS, is_unicode, short, text_lines

HEADER = ("query-id", "corpus-id", "score")
GRADE = re.compile(r"[+-]?[0-9]{1,18}")  # int() takes other digits and underscores, too
IN_FOLDER = (
    "expected corpus.jsonl, queries.jsonl and qrels/ in the folder of a collection: add the file, "
    "or give another folder"
)


def load_collection(source: str | Path, splits: Sequence[str] = SPLITS) -> Collection:
    """A collection from a folder in the BEIR layout, the built-in one, or one of ir_datasets.

    Judgments of documents that the corpus lacks are left out, and counted in one warning per
    split: public collections have a few. Everything else that is wrong with a file is an error.

    Args:
        source: The folder, "builtin" (a folder of that name is "./builtin"), or
            "ir_datasets:NAME" (see `kytolly.search.index.dataset_names`).
        splits: The judgments to read. The files of other splits are not opened.

    Raises:
        ValueError: A file is missing, empty, malformed or contradicts another one; the message
            names file and line.
    """
    if str(source) == BUILTIN:
        return builtin_collection(splits)
    if name := dataset_name(source):
        return load_dataset(name, splits)
    folder = _existing_folder(Path(source))
    docs = dict(_records(folder / "corpus.jsonl", "document", with_title=True))
    queries = dict(_records(folder / "queries.jsonl", "query", with_title=False))
    return Collection(
        name=folder.resolve().name,
        doc_ids=tuple(docs),
        texts=tuple(docs.values()),
        query_ids=tuple(queries),
        queries=tuple(queries.values()),
        judgments={name: _judgments(folder, name, docs, queries) for name in splits},
    )


def read_queries(path: str | Path) -> dict[str, str]:
    """Query id -> text, from a file of JSON lines with `_id` and `text`.

    Raises:
        ValueError: The file is missing, empty or malformed; the message names file and line.
    """
    return dict(_records(Path(path), "query", with_title=False))


def resolved_source(source: str) -> str:
    """A source as it is found from any folder: folders by their full path, names as they are."""
    return source if source == BUILTIN or dataset_name(source) else str(Path(source).resolve())


def available_splits(source: str | Path) -> list[str]:
    """Names of the splits that a source has judgments for; nothing in them is read."""
    if str(source) == BUILTIN:
        return list(SPLITS)
    if name := dataset_name(source):
        parts = split_datasets(name)
        return [split for split in SPLITS if split in parts]
    names = {path.stem for path in (_existing_folder(Path(source)) / "qrels").glob("*.tsv")}
    usual = [name for name in SPLITS if name in names]
    return usual + sorted(names - set(usual))


def _existing_folder(folder: Path) -> Path:
    try:
        what = None if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    if what:
        raise ValueError(
            f"{folder} {what}; expected a folder with corpus.jsonl, queries.jsonl and qrels/: "
            'give the folder of a collection in the BEIR layout, or "builtin".'
        )
    return folder


def _records(path: Path, kind: str, with_title: bool) -> Iterator[tuple[str, str]]:
    """(id, text) of each line of a corpus or query file."""
    seen: dict[str, int] = {}
    for number, line in text_lines(path, IN_FOLDER):
        key, text = _record(f"{path}:{number}", line, kind, with_title)
        if key in seen:
            raise ValueError(
                f"{path}:{number}: the {kind} id {key!r:.80} is also in line {seen[key]}; ids must "
                "be unique: remove or rename one of the two."
            )
        seen[key] = number
        yield key, text
    if not seen:
        raise ValueError(
            f"{path} has no {kind}; expected at least one line like "
            '{"_id": "1", "text": "..."}: check that the file was written completely.'
        )


def _record(place: str, line: str, kind: str, with_title: bool) -> tuple[str, str]:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{place}: not JSON ({error}); expected one JSON object per line: repair this line."
        ) from None
    if not isinstance(record, dict):
        raise ValueError(
            f"{place}: found {short(line)}; expected an object like "
            '{"_id": "1", "text": "..."}: repair this line.'
        )
    key = record.get("_id")
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not key or NOT_IN_IDS.search(key):
        raise ValueError(
            f'{place}: the "_id" of this {kind} is {short(record.get("_id"))}; expected a text '
            "without spaces (they separate the columns of run files) and control characters: "
            "repair this line."
        )
    parts = [record.get("title") or ""] if with_title else []
    parts.append(record.get("text"))
    for name, part in zip(("title", "text")[-len(parts) :], parts, strict=True):
        if not isinstance(part, str):
            raise ValueError(
                f'{place}: the {kind} {key!r:.80} has the "{name}" {short(part)}; expected a text '
                "in quotation marks: repair this line."
            )
        if not is_unicode(part):
            raise ValueError(
                f'{place}: the {kind} {key!r:.80} has half a character in its "{name}" (an escape '
                "from \\ud800 to \\udfff); expected whole ones: repair this line."
            )
    return key, " ".join(part for part in parts if part)


def _judgments(
    folder: Path, split: str, docs: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        raise ValueError(unknown_split(split, str(folder), available_splits(folder)))
    grades: dict[str, dict[str, int]] = {}
    unknown: list[str] = []
    for place, query, doc, grade in _judgment_lines(path):
        if query not in queries:
            raise ValueError(
                f"{place}: the query {query!r:.80} is not in queries.jsonl; every query with "
                "judgments must be there: add it, or remove its judgments."
            )
        if doc not in docs:
            unknown.append(f"{doc!r:.80} at {place}")
            continue
        if grades.setdefault(query, {}).setdefault(doc, grade) != grade:
            raise ValueError(
                f"{place}: query {query!r:.80} and document {doc!r:.80} have the grade {grade} "
                f"here and {grades[query][doc]} in an earlier line; expected one grade: remove one "
                "line."
            )
    if not grades:
        raise ValueError(
            f"{path} judges no document of the corpus ({len(unknown)} judgments of others); "
            "expected at least one: check that corpus and judgments belong together."
        )
    if unknown:
        warnings.warn(
            f"{path}: left out {len(unknown)} judgments of documents that corpus.jsonl lacks "
            f"(the first: {unknown[0]}); metrics count the others only.",
            stacklevel=4,
        )
    return grades


def _judgment_lines(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """(place, query id, document id, grade) of each line after the header."""
    header_seen = False
    for number, line in text_lines(path, IN_FOLDER):
        place, fields = f"{path}:{number}", tuple(line.split("\t"))
        if not header_seen:
            header_seen = True
            if tuple(field.strip().lower().replace("_", "-") for field in fields) != HEADER:
                raise ValueError(
                    f"{place}: the first line is {short(line)}; expected the header "
                    f"{'<tab>'.join(HEADER)}: add it (or else the first judgment would be lost)."
                )
            continue
        if len(fields) != 3:
            raise ValueError(
                f"{place}: {len(fields)} columns in {short(line)}; expected 3, separated by tabs "
                f"({', '.join(HEADER)}): repair this line."
            )
        query, doc, grade = (field.strip() for field in fields)
        if not GRADE.fullmatch(grade):
            raise ValueError(
                f"{place}: the score is {short(grade)}; expected a whole number (above 0 means "
                "relevant): repair this line."
            )
        yield place, query, doc, int(grade)
