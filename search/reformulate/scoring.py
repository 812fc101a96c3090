"""Scores, ranks and metrics of one query, in NumPy over all documents of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.rank_metrics import NOT_RANKED, metric
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.table import candidate_postings


def query_scores(index: BM25Index, query: Query, weights: Mapping[str, float]) -> np.ndarray:
    """[documents] scores; -inf for a document that the query must not find."""
    scores = index.scores(weights)
    if query.excluded >= 0:
        scores[query.excluded] = -np.inf
    return scores


def term_columns(index: BM25Index, query: Query) -> np.ndarray:
    """[n + m, documents] scores that each term whose weight may change adds at weight 1.

    The last ones are below 0: what the query loses with each term of `query.lowerable`.
    """
    columns = np.zeros((query.options, index.documents), np.float32)
    for place, column in enumerate(columns):
        docs, impacts = candidate_postings(index, query, place)
        column[docs] = impacts
    return columns


def query_ranks(query: Query, scores: np.ndarray) -> np.ndarray:
    """[n, R] int32 ranks of the relevant documents, from 0, under [n, documents] scores.

    Of equal scores, the first document comes first.
    """
    ranks = np.full((len(scores), len(query.relevant)), NOT_RANKED, np.int32)
    for column, doc in enumerate(query.relevant):
        if doc != query.excluded:
            score = scores[:, doc, np.newaxis]
            ranks[:, column] = (scores > score).sum(axis=1) + (scores[:, :doc] == score).sum(axis=1)
    return ranks


def metric_values(name: str, query: Query, scores: np.ndarray) -> np.ndarray:
    """[n] metric of one query under [n, documents] scores."""
    ranks = query_ranks(query, scores)
    return metric(name, ranks, np.full(len(ranks), len(query.relevant), np.int32)).numpy()


def metric_per_query(name: str, ranks: Sequence[np.ndarray], counts: Sequence[int]) -> np.ndarray:
    """[Q] metric of each query.

    Args:
        name: ndcg@k, ap, recall@k or mrr@k.
        ranks: [Q] arrays [R] of ranks; R differs between queries.
        counts: [Q] number of relevant documents.
    """
    padded = np.full((len(ranks), max(map(len, ranks))), NOT_RANKED, np.int32)
    for row, of_query in zip(padded, ranks, strict=True):
        row[: len(of_query)] = of_query
    return metric(name, padded, np.array(counts, np.int32)).numpy()
