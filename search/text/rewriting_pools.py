"""Judged queries with the documents that a written term may move, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.rank_metrics import NOT_RANKED, metric_on_host, relevant_ranks
from kytolly.search.index.ranking import best_places

MISSING = -1  # in place of a document, or of a place
HIDDEN = -1e30  # score of a document that is none


class SearchedQuery(NamedTuple):
    """A query with the documents that it should find.

    Attributes:
        text: Of the query.
        relevant: Documents that are relevant, without the query itself.
        own: The document that is the query; None: none is.
    """

    text: str
    relevant: list[int]
    own: int | None


class Pools(NamedTuple):
    """The documents that training ranks for each of `Q` queries, in order of their index.

    Attributes:
        docs: [Q, P] int32, `MISSING` at the end.
        base: [Q, P] float32 scores of the query alone, `HIDDEN` where there is no document.
        relevant: [Q, R] int32 places of the relevant documents, `MISSING` at the end.
        relevant_count: [Q] int32.
    """

    docs: np.ndarray
    base: np.ndarray
    relevant: np.ndarray
    relevant_count: np.ndarray


class Postings(NamedTuple):
    """The documents in which the words of a vocabulary of `V` occur, one word after the other.

    Attributes:
        starts: [V + 1] int32 where each word's documents begin.
        docs: [n] int32 documents, ascending for each word.
        impacts: [n] float32 what the word at weight 1 adds to their scores.
    """

    starts: np.ndarray
    docs: np.ndarray
    impacts: np.ndarray


def searched_queries(collection: Collection, split: str) -> list[SearchedQuery]:
    """The queries of a split with a relevant document that is not the query itself."""
    queries = []
    for number in collection.split(split):
        if relevant := collection.relevant_others(number, split):
            itself = collection.own_document(number)
            queries.append(SearchedQuery(collection.queries[number], relevant, itself))
    if not queries:
        raise ValueError(
            f"no query of the split {split} of {collection.name} has a relevant document. Give "
            "another collection."
        )
    return queries


def make_pools(
    index: BM25Index,
    queries: Sequence[SearchedQuery],
    written: Sequence[Sequence[str]],
    weight: float,
    count: int,
) -> Pools:
    """Pools of `count` documents, and the relevant ones that are not among them.

    Half of them are the best for the query, the others the best for the query with the terms that
    the rewriter writes before training.

    Args:
        index: Of the collection.
        queries: [Q].
        written: [Q] those terms.
        weight: Of a term.
        count: Documents of a pool.
    """
    pools = []
    for query, terms in zip(queries, written, strict=True):
        base = query_scores(index, query, {})
        longer = query_scores(index, query, dict.fromkeys(terms, weight))
        docs = best_places(base, count if len(base) <= count else -(-count // 2))
        others = best_places(longer, count)
        others = others[~np.isin(others, docs)][: count - len(docs)]
        docs = np.concatenate([docs, others, query.relevant])
        docs = np.unique(docs.astype(np.int32))
        docs = docs[docs != (MISSING if query.own is None else query.own)]
        places = np.searchsorted(docs, np.array(query.relevant))
        pools.append((docs, base[docs], places))
    docs, base, relevant = zip(*pools, strict=True)
    counts = np.array([len(part) for part in relevant], np.int32)
    return Pools(
        matrix(docs, MISSING, np.int32),
        matrix(base, HIDDEN, np.float32),
        matrix(relevant, MISSING, np.int32),
        counts,
    )


def matrix(rows: Sequence[np.ndarray], filler: float, kind: type) -> np.ndarray:
    """[Q, longest] of rows, with a filler after their end."""
    filled = np.full((len(rows), max(map(len, rows))), filler, kind)
    for line, row in zip(filled, rows, strict=True):
        line[: len(row)] = row
    return filled


def make_postings(index: BM25Index, words: Sequence[str]) -> Postings:
    """The postings of words; one that is no term of the index has none."""
    parts = [index.postings(word) for word in words]
    starts = np.cumsum([0, *(len(docs) for docs, _ in parts)]).astype(np.int32)
    docs, impacts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Postings(starts, docs, impacts)


def query_scores(index: BM25Index, query: SearchedQuery, added: Mapping[str, float]) -> np.ndarray:
    """[documents] scores of a query with weighted terms; its own document is last."""
    scores = index.scores({**index.query_weights(query.text), **added})
    if query.own is not None:
        scores[query.own] = HIDDEN
    return scores


def found_ranks(scores: tf.Tensor, relevant: tf.Tensor) -> tf.Tensor:
    """[..., R] ranks of relevant documents; one of score 0 is not found, as BM25 does not."""
    axes = len(scores.shape) - 1
    relevant_scores = tf.gather(scores, tf.maximum(relevant, 0), axis=-1, batch_dims=axes)
    return tf.where(relevant_scores == 0.0, NOT_RANKED, relevant_ranks(scores, relevant))


def metric_values(
    index: BM25Index,
    queries: Sequence[SearchedQuery],
    written: Sequence[Sequence[str]],
    weight: float,
    name: str,
) -> np.ndarray:
    """[Q] a metric of the search of all documents with written terms of one weight."""
    ranks = []
    for query, terms in zip(queries, written, strict=True):
        scores = query_scores(index, query, dict.fromkeys(terms, weight))
        row = []
        for doc in query.relevant:
            ahead = np.sum(scores > scores[doc]) + np.sum(scores[:doc] == scores[doc])
            row.append(ahead if scores[doc] else NOT_RANKED)
        ranks.append(row)
    counts = np.array([len(row) for row in ranks], np.int32)
    return metric_on_host(name, matrix(ranks, NOT_RANKED, np.int32), counts)
