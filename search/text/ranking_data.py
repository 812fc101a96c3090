"""Candidates of judged queries, the rows that a re-ranker learns from, and its metric."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kytolly.search.index.collection import Collection
from kytolly.search.index.fusion import NONE, FirstSearch
from kytolly.search.index.rank_metrics import NOT_RANKED, metric_on_host

METRIC = "ndcg@10"


class Candidates(NamedTuple):
    """The best documents of a first search for the queries of a split.

    Attributes:
        queries: [Q] int32 queries of the collection.
        documents: [Q, depth] int32, best first, padded with NONE.
        scores: [Q, depth] of the first search.
        relevant: [Q, depth] whether a document is relevant.
        counts: [Q] int32 relevant documents of a query, found or not.
    """

    queries: np.ndarray
    documents: np.ndarray
    scores: np.ndarray
    relevant: np.ndarray
    counts: np.ndarray

    def part(self, rows: np.ndarray) -> Candidates:
        """Some of the queries."""
        return Candidates(*(column[rows] for column in self))


def search_split(collection: Collection, first: FirstSearch, split: str, depth: int) -> Candidates:
    """The best documents for each query of a split that has a relevant one.

    A document that is the query itself is left out, among the relevant ones, too.
    """
    relevant: dict[int, list[int]] = {}
    for query in collection.split(split):
        if good := collection.relevant_others(query, split):
            relevant[query] = good
    docs, scores = first.search(collection, list(relevant), depth)
    hits = [np.isin(row, good) for row, good in zip(docs, relevant.values(), strict=True)]
    return Candidates(
        np.array(list(relevant), np.int32),
        docs,
        scores,
        np.array(hits, bool).reshape(docs.shape),
        np.array([len(good) for good in relevant.values()], np.int32),
    )


def training_rows(
    collection: Collection, candidates: Candidates, negatives: int, samples: int | None, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a question, a relevant document and negatives.

    Negatives are drawn from the documents that a search finds and, where they are too few, from all
    others. With more samples than relevant documents each comes again, with other negatives.

    Args:
        collection: Documents and the judgments of "train".
        candidates: The best documents of a search for the train queries.
        negatives: Documents of a row beside the relevant one.
        samples: Number of rows; None: one for each relevant document of each query.
        seed: Seed of the draws.

    Returns:
        queries: [N] int32.
        documents: [N, 1 + negatives] int32, the relevant one first.
        scores: [N, 1 + negatives] of the search, in units of the question's highest; a document
            that is not found has the lowest.

    Raises:
        ValueError: No query has both a relevant document and another one.
    """
    pairs, rng = [], np.random.default_rng(seed)
    for row, query in enumerate(candidates.queries.tolist()):
        good = collection.relevant(query, "train")
        itself = collection.own_document(query)
        if len({*good, itself} - {None}) < len(collection.doc_ids):
            pairs += [(row, doc) for doc in good if doc != itself]
    if not pairs:
        raise ValueError(
            f"{collection.name} has no train query with a relevant document and another one; "
            "expected at least one: check the judgments."
        )
    order = rng.permutation(len(pairs))
    order = np.resize(order, len(pairs) if samples is None else samples)
    documents = np.empty((len(order), 1 + negatives), np.int32)
    for place, (row, doc) in enumerate(pairs[number] for number in order):
        documents[place] = doc, *_negatives(collection, candidates, row, negatives, rng)
    rows = np.array([pairs[number][0] for number in order])
    return candidates.queries[rows], documents, known_scores(candidates, rows, documents)


def known_scores(candidates: Candidates, rows: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """[N, D] scores of documents [N, D] for the queries in rows [N], as `training_rows` says."""
    docs, scores = candidates.documents[rows], in_units_of_highest(candidates.scores)[rows]
    lowest = np.where(docs == NONE, np.inf, scores).min(axis=1)
    values = np.where(np.isfinite(lowest), lowest, 0.0)[:, np.newaxis].repeat(documents.shape[1], 1)
    for place in range(documents.shape[1]):
        row, rank = np.nonzero(docs == documents[:, place, np.newaxis])
        values[row, place] = scores[row, rank]
    return values.astype(np.float32)


def _negatives(
    collection: Collection, candidates: Candidates, row: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """[count] documents that are not relevant to the query of a row."""
    docs = candidates.documents[row]
    hard = docs[(docs != NONE) & ~candidates.relevant[row]]
    drawn = rng.permutation(hard)[:count]
    if len(drawn) == count:
        return drawn
    query = int(candidates.queries[row])
    itself = collection.own_document(query)
    known = [*collection.relevant(query, "train"), *drawn, *([] if itself is None else [itself])]
    others = np.setdiff1d(np.arange(len(collection.doc_ids)), known)
    others = others if len(others) else hard
    missing = count - len(drawn)
    return np.concatenate([drawn, rng.choice(others, missing, replace=len(others) < missing)])


def in_units_of_highest(scores: np.ndarray) -> np.ndarray:
    """[.., n] scores, divided by the highest one of each query."""
    highest = scores.max(axis=-1, keepdims=True, initial=0.0)
    return scores / np.where(highest > 0.0, highest, 1.0)


def mixed_scores(scores: np.ndarray, network: np.ndarray, weight: float) -> np.ndarray:
    """[.., n] scores in units of the query's highest one, plus the network's times a weight.

    Args:
        scores: [.., n] of the first search.
        network: [.., n] scores of the network.
        weight: Of the network; with 0, the order is that of the first search.
    """
    return in_units_of_highest(scores) + weight * network


def ndcg(candidates: Candidates, scores: np.ndarray) -> np.ndarray:
    """[Q] nDCG@10 of the documents in the order of scores [Q, depth]; equal ones stay in order."""
    order = np.argsort(
        -np.where(candidates.documents == NONE, -np.inf, scores), axis=1, kind="stable"
    )
    ranks = np.argsort(order, axis=1, kind="stable")
    ranks = np.where(candidates.relevant, ranks, NOT_RANKED).astype(np.int32)
    return metric_on_host(METRIC, ranks, np.array(candidates.counts, np.int32))
