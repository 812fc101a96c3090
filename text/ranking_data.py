"""What a search finds for judged queries, the rows that a re-ranker learns from, and its metric."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.collection import Collection
from kytolly.retrieval.metrics import NOT_RANKED, metric

METRIC = "ndcg@10"
NONE = -1  # in place of a document


class Candidates(NamedTuple):
    """The best documents of BM25 for the queries of a split.

    Attributes:
        queries: [Q] int32 queries of the collection.
        documents: [Q, depth] int32, best first, padded with NONE.
        scores: [Q, depth] of BM25.
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


def search_split(collection: Collection, index: BM25Index, split: str, depth: int) -> Candidates:
    """The best documents for each query of a split that has a relevant one.

    A document that is the query itself is left out, among the relevant ones, too.
    """
    relevant: dict[int, list[int]] = {}
    queries: list[int] = []
    for query in collection.split(split):
        own = collection.own_document(query)
        relevant[query] = [one for one in collection.relevant(query, split) if one != own]
        if relevant[query]:
            queries.append(query)
    weights = [index.query_weights(collection.queries[query]) for query in queries]
    docs, scores = index.search_batch(weights, depth + 1)
    for row, query in enumerate(queries):
        own = collection.own_document(query)
        kept = np.flatnonzero(docs[row] != (NONE if own is None else own))
        docs[row, : len(kept)], scores[row, : len(kept)] = docs[row, kept], scores[row, kept]
        docs[row, len(kept) :] = NONE
    docs, scores = docs[:, :depth], scores[:, :depth]
    hits = [np.isin(row, relevant[query]) for row, query in zip(docs, queries, strict=True)]
    counts = [len(relevant[query]) for query in queries]
    return Candidates(
        np.array(queries, np.int32),
        docs,
        np.where(docs == NONE, 0.0, scores),
        np.array(hits, bool).reshape(docs.shape),
        np.array(counts, np.int32),
    )


def training_rows(
    collection: Collection, found: Candidates, negatives: int, samples: int | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a question, a relevant document and negatives.

    Negatives are drawn from the documents that BM25 finds and, where they are too few, from all
    others. With more samples than relevant documents each comes again, with other negatives.

    Args:
        collection: Documents and the judgments of "train".
        found: The best documents of BM25 for the train queries.
        negatives: Documents of a row beside the relevant one.
        samples: Number of rows; None: one for each relevant document of each query.
        seed: Seed of the draws.

    Returns:
        queries: [N] int32.
        documents: [N, 1 + negatives] int32, the relevant one first.

    Raises:
        ValueError: No query has both a relevant document and another one.
    """
    pairs, rng = [], np.random.default_rng(seed)
    for row, query in enumerate(found.queries.tolist()):
        good = collection.relevant(query, "train")
        own = collection.own_document(query)
        if len({*good, own} - {None}) < len(collection.doc_ids):
            pairs += [(row, doc) for doc in good if doc != own]
    if not pairs:
        raise ValueError(
            f"{collection.name} has no train query with a relevant document and another one; "
            "expected at least one: check the judgments."
        )
    order = rng.permutation(len(pairs))
    order = np.resize(order, len(pairs) if samples is None else samples)
    documents = np.empty((len(order), 1 + negatives), np.int32)
    for place, (row, doc) in enumerate(pairs[number] for number in order):
        documents[place] = doc, *_negatives(collection, found, row, negatives, rng)
    rows = np.array([pairs[number][0] for number in order])
    return found.queries[rows], documents


def _negatives(
    collection: Collection, found: Candidates, row: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """[count] documents that are not relevant to the query of a row."""
    docs = found.documents[row]
    hard = docs[(docs != NONE) & ~found.relevant[row]]
    drawn = rng.permutation(hard)[:count]
    if len(drawn) == count:
        return drawn
    query = int(found.queries[row])
    own = collection.own_document(query)
    known = [*collection.relevant(query, "train"), *drawn, *([] if own is None else [own])]
    others = np.setdiff1d(np.arange(len(collection.doc_ids)), known)
    others = others if len(others) else hard
    missing = count - len(drawn)
    return np.concatenate([drawn, rng.choice(others, missing, replace=len(others) < missing)])


def mixed_scores(scores: np.ndarray, network: np.ndarray, weight: float) -> np.ndarray:
    """[.., n] BM25 in units of the query's highest score, plus the network's score times a weight.

    Args:
        scores: [.., n] of BM25.
        network: [.., n] scores of the network.
        weight: Of the network; with 0, the order is BM25's.
    """
    highest = scores.max(axis=-1, keepdims=True, initial=0.0)
    return scores / np.where(highest > 0.0, highest, 1.0) + weight * network


def ndcg(found: Candidates, scores: np.ndarray) -> np.ndarray:
    """[Q] nDCG@10 of the documents in the order of scores [Q, depth]; equal ones stay in order."""
    order = np.argsort(-np.where(found.documents == NONE, -np.inf, scores), axis=1, kind="stable")
    ranks = np.argsort(order, axis=1, kind="stable")
    ranks = np.where(found.relevant, ranks, NOT_RANKED).astype(np.int32)
    return metric(METRIC, tf.constant(ranks), tf.constant(found.counts, tf.int32)).numpy()
