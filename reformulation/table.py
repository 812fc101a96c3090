"""Everything about a set of queries that an episode needs, as arrays.

An episode adds terms to a query. Adding a term adds its column of BM25 scores, and the reward needs
only the ranks of the relevant documents, which are counts of larger scores. Most documents can
never matter to those counts: the *pool* of a query holds those that can, and is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from kytolly.retrieval.metric_names import cutoff

BLOCK = 64  # documents that lie together, so that a column is gathered in few pieces
NEVER = -np.inf  # score of what fills up a block
SHOWN_SCORES = 3  # best scores that an observation may speak of


class ScoredIndex(Protocol):
    """What a table needs of `retrieval.bm25.BM25Index`."""

    def scores(self, weights: Mapping[str, float]) -> np.ndarray:
        """[D] float32 scores of a weighted query."""
        ...

    def postings(self, term: str) -> tuple[np.ndarray, np.ndarray]:
        """Documents with a term, rising, and what the term at weight 1 adds to their scores."""
        ...


class Query(NamedTuple):
    """One query, ready to be reformulated.

    Attributes:
        number: Place in the collection.
        weights: Terms of the query and their weights.
        candidates: Up to `N` terms that may be added.
        candidate_features: [n, F] of each of them.
        state_features: [G] of the query.
        similarity: [n, n] cosines between the candidates.
        query_similarity: [n] cosines of the candidates with the query.
        relevant: Documents judged relevant; empty where nobody judged.
        excluded: A document that is the query itself and must not be found; -1 for none.
        surfaces: How each candidate is most often written, to be shown.
    """

    number: int
    weights: dict[str, float]
    candidates: list[str]
    candidate_features: np.ndarray
    state_features: np.ndarray
    similarity: np.ndarray
    query_similarity: np.ndarray
    relevant: np.ndarray
    excluded: int = -1
    surfaces: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether any document is relevant that may be found."""
        return any(doc != self.excluded for doc in self.relevant)


class Settings(NamedTuple):
    """What an episode may do.

    Attributes:
        metric: Whose change is the reward, such as "ndcg@10".
        max_terms: Most terms that an episode adds.
        max_candidates: Most candidates of a query, `N`.
        weight: Of an added term, where a term of the query has 1.
    """

    metric: str = "ndcg@10"
    max_terms: int = 5
    max_candidates: int = 50
    weight: float = 0.3


class QueryTable(NamedTuple):
    """`Q` queries as arrays. A query's pool is `blocks` rows of `BLOCK` documents, by document.

    Attributes:
        settings: What an episode may do.
        number: [Q] place in the collection.
        blocks: [Q] int32 rows of the query's pool.
        base_row: [Q] int32 where its rows begin in `base`.
        base: [rows, BLOCK] float32 scores of the query as it was typed.
        column_row: [Q] int32 where its candidates' columns begin in `columns`, all rows of the
            first candidate, then those of the second, and so on.
        columns: [rows, BLOCK] float32 scores that candidates add, times the weight. Row 0 is zero.
        relevant: [Q, R] int32 places in the pool of the relevant documents that can be reached;
            -1 for none.
        relevant_count: [Q] int32 relevant documents in all.
        allowed: [Q, N] bool, there is such a candidate.
        candidate_features: [Q, N, F].
        state_features: [Q, G].
        similarity: [Q, N, N].
        query_similarity: [Q, N].
    """

    settings: Settings
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


class TableTooLarge(Exception):
    """The arrays of some queries would take more memory than they may."""


def make_table(
    queries: Sequence[Query],
    index: ScoredIndex,
    settings: Settings,
    pools: Sequence[Pool] | None = None,
) -> QueryTable:
    """Arrays for queries with at least one candidate each.

    Args:
        queries: In their order.
        index: That they search.
        settings: What an episode may do.
        pools: Of the queries; None: they are made here.

    Raises:
        ValueError: There is no query, or one without candidates.
    """
    own = query_arrays(queries, settings)
    pools = make_pools(queries, index, settings)[1] if pools is None else pools
    blocks = np.array([len(pool.base) for pool in pools], np.int32)
    column_rows = [pool.columns.shape[0] * pool.columns.shape[1] for pool in pools]
    columns = [pool.columns.reshape(-1, BLOCK) for pool in pools]
    most = max(len(pool.relevant) for pool in pools)
    return QueryTable(
        settings=settings,
        blocks=blocks,
        base_row=starts_of(blocks, 0),
        base=np.concatenate([pool.base for pool in pools]),
        column_row=starts_of(column_rows, 1),
        columns=np.concatenate([np.zeros((1, BLOCK), np.float32), *columns]),
        relevant=padded([pool.relevant for pool in pools], max(most, 1), -1).astype(np.int32),
        **own,
    )


def query_arrays(queries: Sequence[Query], settings: Settings) -> dict[str, np.ndarray]:
    """What an episode needs of its query and no search gives, by the names in `QueryTable`.

    Raises:
        ValueError: There is no query, or one without candidates.
    """
    if not queries:
        raise ValueError("there are no queries to make a table of, expected at least one.")
    for query in queries:
        if not query.candidates:
            raise ValueError(f"query {query.number} has no candidates: leave it out of the table.")
    wide = settings.max_candidates
    return {
        "number": np.array([query.number for query in queries], np.int32),
        "relevant_count": np.array([len(query.relevant) for query in queries], np.int32),
        "allowed": padded([np.ones(len(q.candidates), bool) for q in queries], wide, False),
        "candidate_features": padded([q.candidate_features for q in queries], wide, 0.0),
        "state_features": np.stack([q.state_features for q in queries]).astype(np.float32),
        "similarity": np.stack(
            [padded(list(_square(q.similarity, wide)), wide, 0.0) for q in queries]
        ),
        "query_similarity": padded([q.query_similarity for q in queries], wide, 0.0),
    }


def select(table: QueryTable, rows: Sequence[int] | np.ndarray) -> QueryTable:
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
    starts = {"base_row": starts_of(blocks, 0), "column_row": starts_of(lengths, 1)}
    ragged = {
        "base": np.concatenate(base),
        "columns": np.concatenate([table.columns[:1], *columns]),
    }
    per_query = {
        name: part[rows]
        for name, part in table._asdict().items()
        if name not in ("settings", *starts, *ragged)
    }
    return QueryTable(settings=table.settings, **per_query, **starts, **ragged)


def starts_of(lengths: Sequence[int] | np.ndarray, first: int) -> np.ndarray:
    """[n] int32 where each of several parts begins that lie one after another, from `first` on."""
    return (first + np.concatenate([[0], np.cumsum(lengths)[:-1]])).astype(np.int32)


class Pool(NamedTuple):
    """The documents that can matter to one query.

    Attributes:
        base: [blocks, BLOCK] float32 scores.
        columns: [n, blocks, BLOCK] float32 what each candidate adds.
        relevant: [r] places of the relevant documents that can be reached.
        documents: [p] their places in the collection, rising.
    """

    base: np.ndarray
    columns: np.ndarray
    relevant: np.ndarray
    documents: np.ndarray


def make_pools(
    queries: Sequence[Query],
    index: ScoredIndex,
    settings: Settings,
    widest: int | None = None,
    most_bytes: int | None = None,
) -> tuple[list[int], list[Pool]]:
    """Places of the queries whose pools have at most `widest` documents, and these pools.

    Raises:
        TableTooLarge: They take more than `most_bytes`; the others are not counted.
    """
    kept, pools, taken = [], [], 0
    for place, query in enumerate(queries):
        pool = make_pool(query, index, settings)
        if widest is not None and pool.base.size > widest:
            continue
        taken += pool.base.nbytes + pool.columns.nbytes
        if most_bytes is not None and taken > most_bytes:
            raise TableTooLarge(f"{place + 1} of {len(queries)} queries take {taken:,} bytes")
        kept.append(place)
        pools.append(pool)
    return kept, pools


def make_pool(query: Query, index: ScoredIndex, settings: Settings) -> Pool:
    """The pool of a query, exact for every choice of at most `max_terms` candidates.

    A document matters if it can come before a relevant one that counts. With a metric that looks
    at the first k ranks only, a relevant document does not count while k others are before it; so
    scores below the k-th best that the query itself gives need not be told apart.
    """
    base = index.scores(query.weights)
    if query.excluded >= 0:
        base[query.excluded] = NEVER
    touched, columns = candidate_columns(query.candidates, index, settings.weight)
    highest = base.copy()
    most = min(settings.max_terms, len(columns))
    highest[touched] += np.partition(columns, len(columns) - most, axis=0)[-most:].sum(axis=0)
    highest *= np.float32(1.0 + 1e-5)  # sums in another order may round to more
    relevant = np.asarray(query.relevant, np.int64)
    relevant = relevant[relevant != query.excluded]
    # What an agent sees of the search are its best scores: they must not depend on judgements.
    kept = highest >= nth_best(base, SHOWN_SCORES)
    depth = cutoff(settings.metric)
    threshold = NEVER
    if depth is not None and depth < len(base):
        threshold = nth_best(base, depth)
        relevant = relevant[highest[relevant] >= threshold]
    if len(relevant):
        kept |= highest >= max(float(base[relevant].min()), threshold)
    if depth is not None:
        # Documents that stay at 0 differ only in their place: the first few stand for all.
        zero = base == 0.0
        zero[touched] = False
        kept[np.flatnonzero(zero)[depth + SHOWN_SCORES :]] = False
    kept[relevant] = True
    top = (depth or 0) + len(relevant) + 1
    kept[np.argpartition(-base, min(top, len(base) - 1))[:top]] = True
    if query.excluded >= 0:
        kept[query.excluded] = False
    documents = np.flatnonzero(kept)
    blocks = -(-len(documents) // BLOCK)
    fill = blocks * BLOCK - len(documents)
    found = np.zeros((len(columns), len(documents)), np.float32)
    place = np.searchsorted(documents, touched)
    inside = kept[touched]
    found[:, place[inside]] = columns[:, inside]
    return Pool(
        np.pad(base[documents], (0, fill), constant_values=NEVER).reshape(blocks, BLOCK),
        np.pad(found, ((0, 0), (0, fill))).reshape(-1, blocks, BLOCK),
        np.searchsorted(documents, relevant),
        documents,
    )


def candidate_columns(
    candidates: Sequence[str], index: ScoredIndex, weight: float
) -> tuple[np.ndarray, np.ndarray]:
    """[d] documents that contain any candidate, rising, and [n, d] what each candidate adds."""
    postings = [index.postings(term) for term in candidates]
    touched = np.unique(np.concatenate([docs for docs, _ in postings]))
    columns = np.zeros((len(candidates), len(touched)), np.float32)
    for row, (docs, impacts) in enumerate(postings):
        columns[row, np.searchsorted(touched, docs)] = np.float32(weight) * impacts
    return touched, columns


def nth_best(scores: np.ndarray, n: int) -> float:
    """The n-th highest of [D] scores; the lowest where there are fewer."""
    n = min(n, len(scores))
    return float(np.partition(scores, len(scores) - n)[len(scores) - n])


def padded(rows: Sequence[np.ndarray], length: int, fill: float) -> np.ndarray:
    """[len(rows), length, ...] with each row filled up at its end."""
    first = np.asarray(rows[0])
    kind = first.dtype if first.dtype.kind in "bi" else np.dtype(np.float32)
    result = np.full((len(rows), length, *first.shape[1:]), fill, kind)
    for number, row in enumerate(rows):
        result[number, : len(row)] = row
    return result


def _square(matrix: np.ndarray, length: int) -> np.ndarray:
    """[length, n] from [n, n], filled up with zeros."""
    return np.pad(matrix, ((0, length - len(matrix)), (0, 0)))
