"""The documents that can matter to a query: its pool.

An episode adds terms to a query. Adding a term adds its column of BM25 scores, and the reward needs
only the ranks of the relevant documents, which are counts of larger scores. Most documents can
never change those counts. The pool of a query holds the others, and is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from kytolly.reformulation.query import EpisodeRules, Query
from kytolly.retrieval.metric_names import cutoff
from kytolly.retrieval.ranking import nth_best

BLOCK = 64  # documents of a row, so that a column is gathered in few pieces
NEVER = -np.inf  # score that fills up a block
SHOWN_SCORES = 3  # number of best scores that an observation may use


class ScoredIndex(Protocol):
    """What a pool needs of `retrieval.bm25.BM25Index`."""

    def scores(self, weights: Mapping[str, float]) -> np.ndarray:
        """[D] float32 scores of a weighted query."""
        ...

    def postings(self, term: str) -> tuple[np.ndarray, np.ndarray]:
        """Documents with a term, rising, and what the term at weight 1 adds to their scores."""
        ...


class TableTooLarge(Exception):
    """The arrays of some queries would take more memory than they may."""


class Pool(NamedTuple):
    """The documents that can matter to one query.

    Attributes:
        base: [blocks, BLOCK] float32 scores.
        columns: [n, blocks, BLOCK] float32 scores that each candidate adds.
        relevant: [r] places in the pool of the relevant documents that can be reached.
        documents: [p] places of the pool's documents in the collection, rising.
    """

    base: np.ndarray
    columns: np.ndarray
    relevant: np.ndarray
    documents: np.ndarray


def make_pools(
    queries: Sequence[Query],
    index: ScoredIndex,
    rules: EpisodeRules,
    widest: int | None = None,
    most_bytes: int | None = None,
) -> tuple[list[int], list[Pool]]:
    """Places of the queries whose pools have at most `widest` documents, and these pools.

    Raises:
        TableTooLarge: These pools take more than `most_bytes`.
    """
    kept, pools, taken = [], [], 0
    for place, query in enumerate(queries):
        pool = make_pool(query, index, rules)
        if widest is not None and pool.base.size > widest:
            continue
        taken += pool.base.nbytes + pool.columns.nbytes
        if most_bytes is not None and taken > most_bytes:
            raise TableTooLarge(f"{place + 1} of {len(queries)} queries take {taken:,} bytes")
        kept.append(place)
        pools.append(pool)
    return kept, pools


def make_pool(query: Query, index: ScoredIndex, rules: EpisodeRules) -> Pool:
    """The pool of a query, exact for every choice of at most `max_terms` candidates.

    A document matters if it can come before a relevant one that counts. With a metric that looks
    at the first k ranks only, a relevant document does not count while k others are before it; so
    scores below the k-th best that the query itself gives need not be told apart.
    """
    base = index.scores(query.weights)
    if query.excluded >= 0:
        base[query.excluded] = NEVER
    touched, columns = candidate_columns(query.candidates, index, rules.weight)
    highest = base.copy()
    most = min(rules.max_terms, len(columns))
    highest[touched] += np.partition(columns, len(columns) - most, axis=0)[-most:].sum(axis=0)
    highest *= np.float32(1.0 + 1e-5)  # sums in another order may round to more
    relevant = np.asarray(query.relevant, np.int64)
    relevant = relevant[relevant != query.excluded]
    # What an agent sees of the search are its best scores: they must not depend on judgments.
    kept = highest >= nth_best(base, SHOWN_SCORES)
    depth = cutoff(rules.metric)
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
    """[d] documents that contain any candidate, rising, and [n, d] scores that candidates add."""
    postings = [index.postings(term) for term in candidates]
    touched = np.unique(np.concatenate([docs for docs, _ in postings]))
    columns = np.zeros((len(candidates), len(touched)), np.float32)
    for row, (docs, impacts) in enumerate(postings):
        columns[row, np.searchsorted(touched, docs)] = np.float32(weight) * impacts
    return touched, columns
