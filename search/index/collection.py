"""A collection: documents, queries, and the judgments of some splits."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence

from kytolly.config.words import nearest

BUILTIN = "builtin"
SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Collection:
    """Documents, queries and the judgments of some splits.

    Attributes:
        name: The folder's name, or "builtin".
        doc_ids: [documents] in file order; positions here are the document indices everywhere.
        texts: [documents] title and text, joined.
        query_ids: [queries] in file order; positions here are the query indices everywhere.
        queries: [queries] texts.
        judgments: split -> query id -> document id -> grade; above 0 is relevant. It holds only
            the splits that were asked for; the others were never read.
    """

    name: str
    doc_ids: Sequence[str]
    texts: Sequence[str]
    query_ids: Sequence[str]
    queries: Sequence[str]
    judgments: Mapping[str, Mapping[str, Mapping[str, int]]]

    def split(self, name: str) -> list[int]:
        """Indices of the queries with judgments in a split, in file order."""
        grades = self._grades(name)
        return [index for index, query in enumerate(self.query_ids) if query in grades]

    def relevant(self, query_index: int, split: str) -> list[int]:
        """Indices of the documents with a grade above 0, ascending."""
        grades = self._grades(split).get(self.query_ids[query_index], {})
        return sorted(self.doc_index[doc] for doc, grade in grades.items() if grade > 0)

    def relevant_others(self, query_index: int, split: str) -> list[int]:
        """`relevant` without the document that is the query."""
        itself = self.own_document(query_index)
        return [document for document in self.relevant(query_index, split) if document != itself]

    def own_document(self, query_index: int) -> int | None:
        """Index of the document that is the query: the same id and the same text; None: none is.

        Where queries are documents (a title asks for what it cites) every search would find the
        query first: leave this document out of rankings and feedback. An equal id alone means
        nothing, because many collections number queries and documents alike.
        """
        document = self.doc_index.get(self.query_ids[query_index])
        if document is None or self.texts[document].strip() != self.queries[query_index].strip():
            return None
        return document

    def with_queries(self, query_ids: Sequence[str], queries: Sequence[str]) -> Collection:
        """The same documents with other queries, and no judgment."""
        collection = dataclasses.replace(self, query_ids=query_ids, queries=queries, judgments={})
        collection.__dict__["doc_index"] = self.doc_index  # milliseconds for many documents
        return collection

    @functools.cached_property
    def doc_index(self) -> dict[str, int]:
        """Document id -> index."""
        return {doc: index for index, doc in enumerate(self.doc_ids)}

    def _grades(self, split: str) -> Mapping[str, Mapping[str, int]]:
        if split not in self.judgments:
            raise ValueError(unknown_split(split, self.name, list(self.judgments)))
        return self.judgments[split]


def warn_of_shared_queries(collection: Collection) -> None:
    """Warn of dev and test queries that an earlier split has too, by their id or their text.

    Texts that differ in case and spaces only are the same.
    """
    earlier: set[str] = set()
    names: list[str] = []
    shared: list[str] = []
    for split in SPLITS:
        if split not in collection.judgments:
            continue
        numbers = collection.split(split)
        keys = [(collection.query_ids[number], _plain(collection, number)) for number in numbers]
        if known := sum(not earlier.isdisjoint(pair) for pair in keys):
            where = " or ".join(names)
            shared.append(f"{known:,} of {len(keys):,} {split} queries are also in {where}")
        earlier.update(*keys)
        names.append(split)
    if shared:
        warnings.warn(
            f"{collection.name}: {', and '.join(shared)}, with the same id or the same text: what "
            "dev queries choose, and the metrics of test queries, look better than they are. "
            "Expected each query in one split: leave it out of the later one.",
            stacklevel=3,
        )


def _plain(collection: Collection, number: int) -> str:
    """A query's text in lower case between spaces, which no id has."""
    return f" {' '.join(collection.queries[number].lower().split())} "


def text_digest(texts: Iterable[str]) -> str:
    """SHA-256 of texts in their order, the same on every machine and in every process."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def unknown_split(split: str, where: str, known: Sequence[str]) -> str:
    """The message for a split that is not there, with the nearest name that is."""
    hint = nearest(split, known) or " Ask for one of these."
    return f"No split {split!r} in {where}; there are: {', '.join(known) or 'none'}.{hint}"
