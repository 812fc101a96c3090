"""What learning has to beat: classic query expansion, and the ceiling that judgements allow.

Each method is a function of a query that returns weighted terms; `evaluate` searches with them. All
share one index, so that nothing but the weights differs.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kytolly.reformulation.mining import feedback_counts
from kytolly.reformulation.table import Query, ScoredIndex
from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.metrics import NOT_RANKED, metric

Method = Callable[[Query], Mapping[str, float]]  # query -> term -> weight

RM3_GRID = {
    "original": (0.5, 0.6, 0.7, 0.8, 0.9),
    "documents": (3, 5, 10, 20),
    "terms": (5, 10, 20, 40),
}
ROCCHIO_GRID = {
    "beta": (0.1, 0.2, 0.35, 0.5, 0.75),
    "documents": (3, 5, 10, 20),
    "terms": (5, 10, 20, 40),
}
APPEND_GRID = {"weight": (0.1, 0.2, 0.3, 0.5, 1.0), "terms": (1, 2, 3, 5)}


@dataclasses.dataclass(frozen=True)
class PlainBM25:
    """The query as it was typed."""

    index: BM25Index

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        return dict(query.weights)


@dataclasses.dataclass(frozen=True)
class RM3:
    """The query mixed with the language of the documents that it finds.

    `original * P(t | query) + (1 - original) * P(t | feedback)`, where the feedback's language is
    the mean of its documents' term shares, weighted with their scores, cut to the best terms.

    Args:
        index: The documents.
        documents: Of the feedback.
        terms: Of the feedback that are kept.
        original: Weight of the query.
        common: Terms in more than this share of all documents are no feedback.

    Source: Abdul-Jaleel et al. 2004, "UMass at TREC 2004", with BM25's scores as Anserini's
    implementation has them (Lin 2019, "The Neural Hype and Comparisons Against Weak Baselines").
    """

    index: BM25Index
    documents: int = 10
    terms: int = 10
    original: float = 0.5
    common: float = 0.1

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight; weights sum up to 1."""
        found, scores = feedback(self.index, query, self.documents)
        language = {}
        if len(found):
            ids, counts = rare_counts(self.index, found, self.common)
            shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)
            language = best_terms(self.index, ids, scores @ shares, self.terms)
        language = scaled(language, sum(language.values()))
        own = scaled(query.weights, sum(query.weights.values()))
        return mixed(own, self.original, language, 1.0 - self.original)


@dataclasses.dataclass(frozen=True)
class Rocchio:
    """The query's vector moved towards the mean of the documents that it finds.

    `alpha * query + beta * mean(documents)`, all vectors of term counts with length 1, the mean cut
    to its best terms.

    Args:
        index: The documents.
        documents: Of the feedback.
        terms: Of the mean that are kept.
        alpha: Weight of the query.
        beta: Weight of the feedback.
        common: Terms in more than this share of all documents are no feedback.

    Source: Rocchio 1971, "Relevance Feedback in Information Retrieval", without the documents that
    are not relevant, as Anserini implements it.
    """

    index: BM25Index
    documents: int = 10
    terms: int = 10
    alpha: float = 1.0
    beta: float = 0.75
    common: float = 0.1

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        found, _ = feedback(self.index, query, self.documents)
        mean = {}
        if len(found):
            ids, counts = rare_counts(self.index, found, self.common)
            lengths = np.linalg.norm(counts, axis=1, keepdims=True)
            vectors = counts / np.maximum(lengths, 1e-9)
            mean = best_terms(self.index, ids, vectors.mean(axis=0), self.terms)
        own = scaled(query.weights, float(np.linalg.norm(list(query.weights.values()))))
        return mixed(own, self.alpha, mean, self.beta)


@dataclasses.dataclass(frozen=True)
class AppendTop:
    """The query with its best candidates, as mining ranks them."""

    terms: int = 1
    weight: float = 0.3

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        return extended(query, query.candidates[: self.terms], self.weight)


@dataclasses.dataclass(frozen=True)
class RandomTerms:
    """The query with random candidates, the same at every call."""

    terms: int = 1
    weight: float = 0.3
    seed: int = 0

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        generator = np.random.default_rng((self.seed, query.number + 1))
        chosen = generator.permutation(len(query.candidates))[: self.terms]
        return extended(query, [query.candidates[place] for place in chosen], self.weight)


@dataclasses.dataclass(frozen=True)
class GreedyCeiling:
    """The candidates that raise the true metric most, one after the other, while any does.

    It looks at the judgements of the very query: no method, but what the best choice of terms could
    reach, or nearly (a pair of terms that only help together is not seen).
    """

    index: BM25Index
    terms: int = 5
    weight: float = 0.3
    metric: str = "ndcg@10"

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        columns = columns_of(self.index, query, self.weight)
        scores = query_scores(self.index, query, query.weights)
        now = float(values(query, scores[np.newaxis], self.metric)[0])
        chosen: list[int] = []
        for _ in range(min(self.terms, len(columns))):
            after = values(query, scores + columns, self.metric)
            after[chosen] = -1.0
            best = int(np.argmax(after))
            if after[best] <= now + 1e-7:
                break
            chosen.append(best)
            now, scores = float(after[best]), scores + columns[best]
        return extended(query, [query.candidates[place] for place in chosen], self.weight)


class Tuned(NamedTuple):
    """The best of a grid.

    Attributes:
        method: With the best settings.
        settings: Those.
        value: Their mean metric on the queries of the tuning.
    """

    method: Method
    settings: dict[str, Any]
    value: float


def tune(
    make: Callable[..., Method],
    grid: Mapping[str, Sequence],
    queries: Sequence[Query],
    index: BM25Index,
    metric: str = "ndcg@10",
    workers: int | None = None,
) -> Tuned:
    """The settings with the best mean metric; of equals the first.

    Args:
        make: Makes a method from settings, such as `functools.partial(RM3, index)`.
        grid: Setting -> its choices; all combinations are tried.
        queries: Judged queries, of the dev split.
        index: To search.
        metric: Whose mean counts.
        workers: Threads; None: one per core.
    """
    best: Tuned | None = None
    for choice in itertools.product(*grid.values()):
        settings = dict(zip(grid, choice, strict=True))
        method = make(**settings)
        value = float(np.mean(evaluate(method, queries, index, metric, workers)))
        if best is None or value > best.value:
            best = Tuned(method, settings, value)
    if best is None:
        raise ValueError("the grid has a setting without choices: give each at least one.")
    return best


def evaluate(
    method: Method,
    queries: Sequence[Query],
    index: BM25Index,
    metric: str = "ndcg@10",
    workers: int | None = None,
) -> np.ndarray:
    """[Q] metric of each query after searching with a method's weights, in the queries' order.

    Args:
        method: Gives the weights.
        queries: With their judgements.
        index: To search.
        metric: ndcg@k, ap, recall@k or mrr@k.
        workers: Threads; None: one per core.

    Raises:
        ValueError: No query, or one without a relevant document: its metric has no meaning.
    """
    unjudged = [query.number for query in queries if not len(query.relevant)]
    if unjudged or not queries:
        raise ValueError(
            f"evaluate() got {len(queries)} queries, {len(unjudged)} without a relevant document "
            f"{unjudged[:5]}: attach judgements, and leave out queries that have none."
        )

    def ranks(query: Query) -> np.ndarray:
        return ranks_of_relevant(query, query_scores(index, query, method(query))[np.newaxis])[0]

    with concurrent.futures.ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        found = list(pool.map(ranks, queries))
    return metric_of(metric, found, [len(query.relevant) for query in queries])


def query_scores(index: ScoredIndex, query: Query, weights: Mapping[str, float]) -> np.ndarray:
    """[documents] scores; -inf for a document that the query must not find."""
    scores = index.scores(weights)
    if query.excluded >= 0:
        scores[query.excluded] = -np.inf
    return scores


def columns_of(index: BM25Index, query: Query, weight: float) -> np.ndarray:
    """[n, documents] what each candidate adds to the scores at a weight."""
    return np.float32(weight) * np.stack([index.column(term) for term in query.candidates])


def values(query: Query, scores: np.ndarray, name: str) -> np.ndarray:
    """[n] metric of a query under [n, documents] scores."""
    ranks = ranks_of_relevant(query, scores)
    return metric(name, ranks, np.full(len(ranks), len(query.relevant), np.int32)).numpy()


def ranks_of_relevant(query: Query, scores: np.ndarray) -> np.ndarray:
    """[n, R] int32 ranks from 0 of the relevant documents; of equal scores the first document."""
    ranks = np.full((len(scores), len(query.relevant)), NOT_RANKED, np.int32)
    for place, doc in enumerate(query.relevant):
        if doc != query.excluded:
            own = scores[:, doc, np.newaxis]
            ranks[:, place] = (scores > own).sum(axis=1) + (scores[:, :doc] == own).sum(axis=1)
    return ranks


def metric_of(name: str, ranks: Sequence[np.ndarray], counts: Sequence[int]) -> np.ndarray:
    """[Q] metric from each query's ranks [R], whose number differs."""
    padded = np.full((len(ranks), max(map(len, ranks))), NOT_RANKED, np.int32)
    for row, own in zip(padded, ranks, strict=True):
        row[: len(own)] = own
    return metric(name, padded, np.array(counts, np.int32)).numpy()


def feedback(index: BM25Index, query: Query, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The best documents [k] of a query and their scores [k], without the excluded one."""
    docs, scores = index.search(query.weights, count + (query.excluded >= 0))
    kept = docs != query.excluded
    return docs[kept][:count], scores[kept][:count]


def rare_counts(
    index: BM25Index, documents: np.ndarray, common: float
) -> tuple[np.ndarray, np.ndarray]:
    """Terms [u] of documents and their counts [k, u], those left out that many documents have."""
    ids, counts = feedback_counts(index, documents)
    kept = index.document_frequency[ids] <= max(common * index.documents, 1)
    return ids[kept], counts[:, kept]


def best_terms(
    index: BM25Index, ids: np.ndarray, weights: np.ndarray, count: int
) -> dict[str, float]:
    """The terms of largest weight; of equals the first in the alphabet."""
    best = np.argsort(-weights, kind="stable")[:count]
    return {index.terms[ids[place]]: float(weights[place]) for place in best}


def scaled(weights: Mapping[str, float], length: float) -> dict[str, float]:
    """Weights divided by a length, unless that is 0."""
    return {term: weight / (length or 1.0) for term, weight in weights.items()}


def mixed(
    own: Mapping[str, float], share: float, other: Mapping[str, float], rest: float
) -> dict[str, float]:
    """`share * own + rest * other`, the query's terms first."""
    terms = {**own, **other}
    return {term: share * own.get(term, 0.0) + rest * other.get(term, 0.0) for term in terms}


def extended(query: Query, terms: Sequence[str], weight: float) -> dict[str, float]:
    """The query's weights with terms added."""
    return {**query.weights, **dict.fromkeys(terms, weight)}
