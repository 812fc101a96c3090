"""Search engines for weighted queries, whatever holds the documents.

A weighted query is word -> weight. The words are words, not stems: each engine makes tokens of them
by its own rules. An engine that cannot weight words is asked for one word at a time, and what it
gives is summed with the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from kytolly.config.words import nearest
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.bm25s_engine import BM25SEngine
from kytolly.search.index.fts5_engine import FTS5Engine
from kytolly.search.index.ranking import weighted_best
from kytolly.search.index.tokens import Tokenizer

KINDS = ("index", "bm25s", "sqlite")


class SearchEngine(Protocol):
    """A search engine that takes weighted queries."""

    def search(self, weights: Mapping[str, float], top: int) -> tuple[list[str], np.ndarray]:
        """The best documents for a weighted query.

        Args:
            weights: Word -> weight.
            top: At most this many documents.

        Returns:
            ids: [n] ids of documents, best first.
            scores: [n] float64; a document with score 0 is not found.
        """
        ...

    def word_scores(self, word: str) -> tuple[list[str], np.ndarray]:
        """Every document that a word alone finds, in the engine's order, and the scores."""
        ...


class IndexEngine:
    """Our own index, which knows places of documents, with the documents' ids.

    Args:
        index: The index.
        doc_ids: [documents] ids in the order in which the documents were indexed.
    """

    def __init__(self, index: BM25Index, doc_ids: Sequence[str]):
        if len(doc_ids) != index.documents:
            raise ValueError(
                f"{len(doc_ids):,} ids were given for an index of {index.documents:,} documents; "
                "expected one for each: give the ids of the collection that was indexed."
            )
        self.index, self.doc_ids = index, list(doc_ids)

    def search(self, weights: Mapping[str, float], top: int) -> tuple[list[str], np.ndarray]:
        """The best documents for a weighted query, as in `SearchEngine`."""
        lists = [(weight, *self._postings(word)) for word, weight in weights.items()]
        docs, scores = weighted_best(lists, top)
        return [self.doc_ids[doc] for doc in docs.tolist()], scores

    def word_scores(self, word: str) -> tuple[list[str], np.ndarray]:
        """Every document that a word alone finds, and the scores."""
        docs, scores = self._postings(word)
        return [self.doc_ids[doc] for doc in docs.tolist()], scores

    def _postings(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        scores = self.index.scores(self.index.query_weights(word))
        docs = np.flatnonzero(scores)
        return docs, scores[docs].astype(np.float64)


def open_engine(
    address: str,
    *,
    doc_ids: Sequence[str] | None = None,
    tokenizer: Tokenizer | Callable[[str], Iterable[str]] | None = None,
    table: str | None = None,
    id_column: str = "id",
    text_column: str | None = None,
) -> SearchEngine:
    """A search engine whose documents are on this machine's disk.

    Args:
        address: "sqlite:docs.db", a database with an FTS5 table; "bm25s:folder", an index that
            bm25s saved; "index:index.npz", an index that `BM25Index.save` wrote.
        doc_ids: Ids of the documents. "index" needs them, in the order of indexing; "bm25s" takes
            those of the folder's corpus.jsonl if none are given; "sqlite" only compares them
            with those of the table.
        tokenizer: Rules that made the index. "index": default `EnglishTokenizer()`; "bm25s":
            text -> tokens, default those of `bm25s.tokenize` without a stemmer.
        table: "sqlite" only: the FTS5 table.
        id_column: "sqlite" only: its column with the documents' ids, or "rowid".
        text_column: "sqlite" only: the column that is searched; None: all columns.

    Raises:
        ValueError: The address is none, or what is there is no such engine, or its documents are
            not those of `doc_ids`.
    """
    kind, _, path = address.partition(":")
    if kind not in KINDS or not path:
        raise ValueError(
            f"{address!r:.300} is no address of a search engine; expected "
            f"{', '.join(f'{one}:PATH' for one in KINDS)}.{nearest(kind, KINDS)}"
        )
    if kind == "sqlite":
        if table is None:
            raise ValueError(f"{address} needs the name of an FTS5 table: give table=.")
        return FTS5Engine(path, table, id_column, text_column, doc_ids)
    if kind == "bm25s":
        return BM25SEngine(path, doc_ids, tokenizer)
    if doc_ids is None:
        raise ValueError(
            f"{address} holds no ids of documents: give doc_ids=, in the order of indexing."
        )
    if not Path(path).is_file():
        raise ValueError(f"{path} is no file; expected an index that BM25Index.save wrote.")
    return IndexEngine(BM25Index.load(path, tokenizer=tokenizer), doc_ids)
