"""Queries and their pools as arrays: everything that training needs, on the device.

A pool holds the documents of one query that training ranks: the best under BM25, under cosines and
under both, those that the candidates can lift highest, and the relevant ones. Scores are divided by
the query's `score_unit`, so that they mean the same for all queries and collections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.fusion import DocumentVectors, score_unit
from kytolly.search.reformulate.query import Query, SearchRules

PADDING = -1e4  # score that fills up a pool
HIGHEST = 6e4  # of a score that a candidate adds: half precision holds no more
LIFT = 0.25  # weight of all candidates at which a document's highest score is estimated
SHARES = {"fused": 0.25, "bm25": 0.2, "cosine": 0.1}  # of the pool; lifted documents get the rest


class QueryTable(NamedTuple):
    """`Q` queries as arrays, with `N` candidates and pools of `P` documents.

    Attributes:
        number: [Q] int32 place in the collection.
        base: [Q, P] float32 BM25 of the query as it was typed.
        cosine: [Q, P] float32 cosines of documents and query.
        columns: [Q, N, P] float16 scores that candidates add at weight 1, and that terms of the
            query take away.
        relevant: [Q, R] int32 places of the relevant documents in the pool; -1 for none.
        relevant_count: [Q] int32 number of relevant documents.
        candidate_features: [Q, N, F] float32; all 0 where there is no candidate.
        state_features: [Q, G] float32.
    """

    number: np.ndarray
    base: np.ndarray
    cosine: np.ndarray
    columns: np.ndarray
    relevant: np.ndarray
    relevant_count: np.ndarray
    candidate_features: np.ndarray
    state_features: np.ndarray

    @property
    def bytes(self) -> int:
        """Size of all arrays."""
        return sum(part.nbytes for part in self)


def row_bytes(rules: SearchRules, features: int) -> int:
    """Size of one query in a table, without its relevant documents."""
    return rules.max_candidates * (2 * rules.pool_documents + 4 * features) + 8 * (
        rules.pool_documents
    )


def make_table(
    queries: Sequence[Query], index: BM25Index, documents: DocumentVectors, rules: SearchRules
) -> QueryTable:
    """Arrays for queries with at least one candidate each.

    Raises:
        ValueError: There is no query, or one without candidates.
    """
    if not queries:
        raise ValueError("there are no queries to make a table of, expected at least one.")
    for query in queries:
        if not query.candidates:
            raise ValueError(f"query {query.number} has no candidates: leave it out of the table.")
    count, wide, pool = len(queries), rules.max_candidates, rules.pool_documents
    most = max(1, *(min(len(query.relevant), pool // 2) for query in queries))
    table = QueryTable(
        number=np.array([query.number for query in queries], np.int32),
        base=np.full((count, pool), PADDING, np.float32),
        cosine=np.zeros((count, pool), np.float32),
        columns=np.zeros((count, wide, pool), np.float16),
        relevant=np.full((count, most), -1, np.int32),
        relevant_count=np.array([len(query.relevant) for query in queries], np.int32),
        candidate_features=padded_rows([q.candidate_features for q in queries], wide),
        state_features=np.stack([q.state_features for q in queries]).astype(np.float32),
    )
    for row, query in enumerate(queries):
        _fill_row(table, row, query, index, documents)
    return table


def _fill_row(
    table: QueryTable, row: int, query: Query, index: BM25Index, documents: DocumentVectors
) -> None:
    scores = index.scores(query.weights)
    if query.excluded >= 0:
        scores[query.excluded] = 0.0
    unit = np.float32(score_unit(scores))
    scores /= unit
    cosine = documents.cosines(query.vector)
    relevant = query.relevant[query.relevant != query.excluded][: table.base.shape[1] // 2]
    postings = [candidate_postings(index, query, place) for place in range(query.options)]
    highest = scores + cosine
    for docs, impacts in postings:
        highest[docs] += np.float32(LIFT) / unit * np.maximum(impacts, 0.0)
    pool = pool_documents(scores, cosine, highest, relevant, query.excluded, table.base.shape[1])
    table.base[row, : len(pool)] = scores[pool]
    table.cosine[row, : len(pool)] = cosine[pool]
    column = np.zeros(len(scores), np.float32)
    for place, (docs, impacts) in enumerate(postings):
        column[docs] = impacts
        table.columns[row, place, : len(pool)] = np.clip(column[pool] / unit, -HIGHEST, HIGHEST)
        column[docs] = 0.0
    table.relevant[row, : len(relevant)] = np.searchsorted(pool, np.sort(relevant))


def candidate_postings(index: BM25Index, query: Query, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Documents [n] whose score a term changes, and by how much [n] at weight 1.

    A term of the query takes away what it gave.
    """
    if place < len(query.candidates):
        return index.postings(query.candidates[place])
    term = query.lowerable[place - len(query.candidates)]
    docs, impacts = index.postings(term)
    return docs, -np.float32(query.weights[term]) * impacts


def pool_documents(
    scores: np.ndarray,
    cosine: np.ndarray,
    highest: np.ndarray,
    relevant: np.ndarray,
    excluded: int,
    size: int,
) -> np.ndarray:
    """[p] at most `size` documents, rising.

    Args:
        scores: [documents] BM25 of the query as it was typed.
        cosine: [documents] cosines with the query.
        highest: [documents] what candidates can lift the fused scores to.
        relevant: Documents that the pool must hold, at most `size`.
        excluded: A document that it must not hold; -1 for none.
        size: Most documents.
    """
    in_pool = np.zeros(len(scores), bool)
    for name, order in (("fused", scores + cosine), ("bm25", scores), ("cosine", cosine)):
        most = int(SHARES[name] * size)
        in_pool[np.argpartition(-order, min(most, len(order) - 1))[:most]] = True
    if excluded >= 0:
        in_pool[excluded] = False
        highest[excluded] = -np.inf
    in_pool[relevant] = True
    left = size - int(in_pool.sum())
    if left > 0:
        others = np.where(in_pool, -np.inf, highest)
        best = np.argpartition(-others, min(left, len(others) - 1))[:left]
        in_pool[best[np.isfinite(others[best])]] = True
    elif left < 0:  # many relevant documents: those of lowest fused score leave
        optional = np.flatnonzero(in_pool & ~np.isin(np.arange(len(in_pool)), relevant))
        in_pool[optional[np.argsort(highest[optional])[:-left]]] = False
    return np.flatnonzero(in_pool)


def concatenation(tables: Sequence[QueryTable]) -> QueryTable:
    """The queries of several tables of equal width, one after another."""
    most = max(table.relevant.shape[1] for table in tables)
    padded = [
        table._replace(
            relevant=np.pad(
                table.relevant,
                [[0, 0], [0, most - table.relevant.shape[1]]],
                constant_values=-1,
            )
        )
        for table in tables
    ]
    return QueryTable(*(np.concatenate(parts) for parts in zip(*padded, strict=True)))


def subset(table: QueryTable, rows: Sequence[int] | np.ndarray) -> QueryTable:
    """The table of some of its queries, in the order of `rows`.

    Raises:
        ValueError: There are no rows.
    """
    rows = np.asarray(rows, np.int64)
    if not len(rows):
        raise ValueError("no query of the table is selected, expected at least one.")
    return QueryTable(*(part[rows] for part in table))


def padded_rows(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    """[len(rows), length, ...] float32 with each row filled up with zeros."""
    result = np.zeros((len(rows), length, *np.asarray(rows[0]).shape[1:]), np.float32)
    for number, row in enumerate(rows):
        result[number, : len(row)] = row
    return result
