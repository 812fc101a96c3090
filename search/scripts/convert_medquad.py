"""MedQuAD as a retrieval collection: medical questions, and the answers of the NIH's websites.

    git clone https://github.com/abachaa/MedQuAD
    python -m kytolly.search.scripts.convert_medquad MedQuAD collections/medquad
    python -m kytolly.search.scripts.convert_medquad MedQuAD data/question_types --labels questions

With `--labels`, it becomes texts with labels for a classifier: train.csv, dev.csv and test.csv with
the columns text, a question or an answer, and type, the question's, such as "symptoms".

MedQuAD states the license CC BY 4.0 and asks to cite Ben Abacha & Demner-Fushman 2019, "A
question-entailment approach to question answering", BMC Bioinformatics 20:511. Three of its twelve
parts hold no answers, for the sake of their copyright; those questions are left out.

It has no published split. Here all questions about one subject, under whichever of its names, are
in one split, so that no disease is known from training. A document is an answer with its subject as
title: many answers do not name what they are about.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from kytolly.search.index.corpus import HEADER


class Pair(NamedTuple):
    """A question, its answer, and what both are about, as the website calls it.

    Attributes:
        key: "part/document-number", unique.
        subject: The name that the website uses.
        names: [n] the subject and its synonyms, in lower case.
        question: One line.
        answer: One line.
        question_type: Such as "symptoms".
    """

    key: str
    subject: str
    names: tuple[str, ...]
    question: str
    answer: str
    question_type: str


class Sizes(NamedTuple):
    """At most so many questions in each split; the others are in none."""

    train: int = 6_000
    dev: int = 600
    test: int = 1_000


def read_pairs(checkout: Path, unanswered: bool = False) -> list[Pair]:
    """Questions that have an answer, or all of them, in the order of the files' names.

    Raises:
        ValueError: A file is no XML, or there is no answer at all.
    """
    pairs = [pair for path in sorted(checkout.glob("*_QA*/*.xml")) for pair in _pairs(path)]
    pairs = [pair for pair in pairs if pair.answer or unanswered]
    if not pairs:
        raise ValueError(
            f"{checkout} has no answered question in *_QA*/*.xml; expected a checkout of "
            "https://github.com/abachaa/MedQuAD: give the folder that holds 1_CancerGov_QA."
        )
    return pairs


def convert(pairs: Sequence[Pair], folder: Path, sizes: Sizes) -> None:
    """Write a collection in the BEIR layout.

    Equal answers about one subject are one document, and questions of equal words are one query,
    with the judgments of all.

    Args:
        pairs: As `read_pairs` gives them.
        folder: To write into; made if it is missing.
        sizes: Of the splits.
    """
    docs: dict[tuple[str, str], Pair] = {}
    queries: dict[str, Pair] = {}
    relevant: dict[str, dict[str, None]] = {}
    for pair in pairs:
        doc = docs.setdefault((pair.names[0], pair.answer), pair)
        query = queries.setdefault(words(pair.question), pair)
        relevant.setdefault(query.key, {})[doc.key] = None
    splits = split_queries(pairs, sizes)
    judged = {key for members in splits.values() for key in members}
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "corpus.jsonl",
        ({"_id": doc.key, "title": doc.subject, "text": doc.answer} for doc in docs.values()),
    )
    write_json(
        folder / "queries.jsonl",
        ({"_id": q.key, "text": q.question} for q in queries.values() if q.key in judged),
    )
    for split, members in splits.items():
        rows = [HEADER, *((query, doc, "1") for query in members for doc in relevant[query])]
        write_lines(folder / "qrels" / f"{split}.tsv", map("\t".join, rows))


def convert_labels(pairs: Sequence[Pair], field: str, folder: Path) -> None:
    """Write texts with their question's type, in three splits that share no subject.

    One subject of ten, drawn by a digest of its name, is in test, and one in dev.

    Args:
        pairs: As `read_pairs` gives them.
        field: "question" or "answer": what the text is.
        folder: To write into; made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for pair, subject in zip(pairs, subjects_of(pairs), strict=True):
        place = hashlib.sha256(subject.encode()).digest()[0] % 10
        split = {0: "test", 1: "dev"}.get(place, "train")
        rows[split].append((getattr(pair, field), pair.question_type))
    for split, members in rows.items():
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "type"), *members])


def split_queries(pairs: Sequence[Pair], sizes: Sizes) -> dict[str, list[str]]:
    """Split -> keys of its questions, each the first of those with equal words.

    Subjects are drawn by a digest of their name, the same everywhere. One with more questions than
    a split has room for goes to the next: test, dev, train.
    """
    first: dict[str, str] = {}
    subjects: dict[str, dict[str, None]] = {}
    for pair, subject in zip(pairs, subjects_of(pairs), strict=True):
        key = first.setdefault(words(pair.question), pair.key)
        subjects.setdefault(subject, {})[key] = None
    splits: dict[str, list[str]] = {"test": [], "dev": [], "train": []}
    for subject in sorted(subjects, key=lambda name: hashlib.sha256(name.encode()).digest()):
        for split, members in splits.items():
            if len(members) + len(subjects[subject]) <= getattr(sizes, split):
                members += subjects[subject]
                break
    return splits


def subjects_of(pairs: Sequence[Pair]) -> list[str]:
    """[pairs] one name of each pair's subject: equal for all that share a name or a question."""
    groups = [[*pair.names, words(pair.question)] for pair in pairs]
    return first_names(groups)


def first_names(groups: Sequence[Sequence[str]]) -> list[str]:
    """[groups] the first name, in the alphabet, of all groups that one shares names with.

    Also those that share names with these, and so on.
    """
    places = {name: at for at, name in enumerate(dict.fromkeys(itertools.chain(*groups)))}
    rows = [row for row, names in enumerate(groups) for _ in names]
    columns = [len(groups) + places[name] for names in groups for name in names]
    size = len(groups) + len(places)
    graph = coo_array((np.ones(len(rows)), (rows, columns)), (size, size))
    labels = connected_components(graph, directed=False)[1].tolist()
    first: dict[int, str] = {}
    for label, names in zip(labels, groups, strict=False):
        first[label] = min(first.get(label, names[0]), *names)
    return [first[label] for label in labels[: len(groups)]]


def words(text: str) -> str:
    """A text without case and punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _pairs(path: Path) -> Iterator[Pair]:
    try:
        document = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(
            f"{path}: not XML ({error}); expected a file of MedQuAD: check it out anew."
        ) from None
    subject = _line(document.findtext("Focus"))
    synonyms = (_line(node.text) for node in document.iter("Synonym"))
    names = tuple(dict.fromkeys(name.lower() for name in (subject, *synonyms) if name))
    for number, node in enumerate(document.iter("QAPair"), start=1):
        asked = node.find("Question")
        question, answer = _line(node.findtext("Question")), _line(node.findtext("Answer"))
        if asked is not None and question and names:
            key = f"{path.parent.name.split('_')[0]}/{path.stem}-{number}"
            kind = _line(asked.get("qtype"))
            yield Pair(key, subject, names, question, answer, kind)


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def write_json(path: Path, records: Iterable[Mapping[str, str]]) -> None:
    """Write a record a line."""
    write_lines(path, (json.dumps(record, ensure_ascii=False) for record in records))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each with its end."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Convert a checkout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="folder of the MedQuAD repository")
    parser.add_argument("output", type=Path, help="folder to write the collection to")
    parser.add_argument(
        "--labels", choices=("questions", "answers"), help="write labeled texts instead"
    )
    arguments = parser.parse_args()
    try:
        pairs = read_pairs(arguments.checkout, unanswered=arguments.labels == "questions")
        if arguments.labels:
            convert_labels(pairs, arguments.labels.removesuffix("s"), arguments.output)
        else:
            convert(pairs, arguments.output, Sizes())
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    print(f"Wrote {arguments.output}.")


if __name__ == "__main__":
    main()
