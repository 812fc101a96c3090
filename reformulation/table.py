"""Queries and their pools as arrays: everything that episodes on the device need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kytolly.reformulation.pool import BLOCK, Pool, ScoredIndex, make_pools
from kytolly.reformulation.query import EpisodeRules, Query


class QueryTable(NamedTuple):
    """`Q` queries as arrays. A query's pool is `blocks` rows of `BLOCK` documents.

    Attributes:
        rules: What an episode may do.
        number: [Q] place in the collection.
        blocks: [Q] int32 rows of the query's pool.
        base_row: [Q] int32 where its rows begin in `base`.
        base: [rows, BLOCK] float32 scores of the query as it was typed.
        column_row: [Q] int32 where its candidates' columns begin in `columns`, all rows of the
            first candidate, then those of the second, and so on.
        columns: [rows, BLOCK] float32 scores that candidates add, times the weight. Row 0 is zero.
        relevant: [Q, R] int32 places in the pool of the relevant documents that can be reached;
            -1 for none.
        relevant_count: [Q] int32 number of relevant documents, reached or not.
        allowed: [Q, N] bool, whether there is such a candidate.
        candidate_features: [Q, N, F].
        state_features: [Q, G].
        similarity: [Q, N, N] cosines between candidates.
        query_similarity: [Q, N] cosines of candidates with the query.
    """

    rules: EpisodeRules
    number: np.ndarray
    blocks: np.ndarray
    base_row: np.ndarray
    base: np.ndarray
    column_row: np.ndarray
    columns: np.ndarray
    relevant: np.ndarray
    relevant_count: np.ndarray
    allowed: np.ndarray
    candidate_features: np.ndarray
    state_features: np.ndarray
    similarity: np.ndarray
    query_similarity: np.ndarray

    @property
    def bytes(self) -> int:
        """Size of all arrays."""
        return sum(part.nbytes for part in self[1:])


def make_table(
    queries: Sequence[Query],
    index: ScoredIndex,
    rules: EpisodeRules,
    pools: Sequence[Pool] | None = None,
) -> QueryTable:
    """Arrays for queries with at least one candidate each.

    Args:
        queries: The queries.
        index: The index to search.
        rules: What an episode may do.
        pools: Their pools; None: they are made here.

    Raises:
        ValueError: There is no query, or one without candidates.
    """
    own = query_arrays(queries, rules)
    pools = make_pools(queries, index, rules)[1] if pools is None else pools
    blocks = np.array([len(pool.base) for pool in pools], np.int32)
    column_rows = [pool.columns.shape[0] * pool.columns.shape[1] for pool in pools]
    columns = [pool.columns.reshape(-1, BLOCK) for pool in pools]
    most = max(len(pool.relevant) for pool in pools)
    return QueryTable(
        rules=rules,
        blocks=blocks,
        base_row=part_starts(blocks, 0),
        base=np.concatenate([pool.base for pool in pools]),
        column_row=part_starts(column_rows, 1),
        columns=np.concatenate([np.zeros((1, BLOCK), np.float32), *columns]),
        relevant=padded_rows([pool.relevant for pool in pools], max(most, 1), -1).astype(np.int32),
        **own,
    )


def query_arrays(queries: Sequence[Query], rules: EpisodeRules) -> dict[str, np.ndarray]:
    """What an episode needs of its query without a search, by the names in `QueryTable`.

    Raises:
        ValueError: There is no query, or one without candidates.
    """
    if not queries:
        raise ValueError("there are no queries to make a table of, expected at least one.")
    for query in queries:
        if not query.candidates:
            raise ValueError(f"query {query.number} has no candidates: leave it out of the table.")
    wide = rules.max_candidates
    return {
        "number": np.array([query.number for query in queries], np.int32),
        "relevant_count": np.array([len(query.relevant) for query in queries], np.int32),
        "allowed": padded_rows([np.ones(len(q.candidates), bool) for q in queries], wide, False),
        "candidate_features": padded_rows([q.candidate_features for q in queries], wide, 0.0),
        "state_features": np.stack([q.state_features for q in queries]).astype(np.float32),
        "similarity": np.stack(
            [np.pad(q.similarity, (0, wide - len(q.similarity))) for q in queries]
        ).astype(np.float32),
        "query_similarity": padded_rows([q.query_similarity for q in queries], wide, 0.0),
    }


def subset(table: QueryTable, rows: Sequence[int] | np.ndarray) -> QueryTable:
    """The table of some of its queries, in the order of `rows`.

    Raises:
        ValueError: There are no rows.
    """
    rows = np.asarray(rows, np.int64)
    if not len(rows):
        raise ValueError("no query of the table is selected, expected at least one.")
    blocks = table.blocks[rows]
    lengths = blocks * table.allowed[rows].sum(axis=1, dtype=np.int32)
    base = [table.base[at : at + n] for at, n in zip(table.base_row[rows], blocks, strict=True)]
    columns = [
        table.columns[at : at + n] for at, n in zip(table.column_row[rows], lengths, strict=True)
    ]
    starts = {"base_row": part_starts(blocks, 0), "column_row": part_starts(lengths, 1)}
    ragged = {
        "base": np.concatenate(base),
        "columns": np.concatenate([table.columns[:1], *columns]),
    }
    per_query = {
        name: part[rows]
        for name, part in table._asdict().items()
        if name not in ("rules", *starts, *ragged)
    }
    return QueryTable(rules=table.rules, **per_query, **starts, **ragged)


def part_starts(lengths: Sequence[int] | np.ndarray, first: int) -> np.ndarray:
    """[n] int32 starts of parts that lie one after another; the first part starts at `first`."""
    return (first + np.concatenate([[0], np.cumsum(lengths)[:-1]])).astype(np.int32)


def padded_rows(rows: Sequence[np.ndarray], length: int, fill: float) -> np.ndarray:
    """[len(rows), length, ...] with each row filled up at its end."""
    first = np.asarray(rows[0])
    kind = first.dtype if first.dtype.kind in "bi" else np.dtype(np.float32)
    result = np.full((len(rows), length, *first.shape[1:]), fill, kind)
    for number, row in enumerate(rows):
        result[number, : len(row)] = row
    return result
