"""Classic query expansion that learning has to beat, and the ceiling that judgments allow.

Each method is a function of a query that returns weighted terms; `evaluate` searches with them. All
methods share one index, so that nothing but the weights differs.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.rank_metrics import NOT_RANKED, metric_on_host
from kytolly.search.index.ranking import best_places
from kytolly.search.reformulate.mining import feedback_counts
from kytolly.search.reformulate.query import CANDIDATE_FEATURES, Query
from kytolly.search.reformulate.table import candidate_postings

Method = Callable[[Query], Mapping[str, float]]  # query -> term -> weight


@dataclasses.dataclass(frozen=True)
class RM3:
    """The query mixed with the language of the documents that it finds.

    `original * P(t | query) + (1 - original) * P(t | feedback)`. The feedback's language is the
    mean of the term shares of its documents, weighted with their scores and cut to the best terms.

    Args:
        index: The documents.
        documents: Number of feedback documents.
        terms: Number of feedback terms that are kept.
        original: Weight of the query.
        common: Terms in more than this share of all documents are ignored.

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
        docs, scores = feedback(self.index, query, self.documents)
        language = {}
        if len(docs):
            ids, counts = rare_counts(self.index, docs, self.common)
            shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)
            language = best_terms(self.index, ids, scores @ shares, self.terms)
        language = divided_weights(language, sum(language.values()))
        typed = divided_weights(query.weights, sum(query.weights.values()))
        return weighted_sum(typed, self.original, language, 1.0 - self.original)


@dataclasses.dataclass(frozen=True)
class Rocchio:
    """The query's vector plus the mean vector of the documents that it finds.

    `alpha * query + beta * mean(documents)`. All vectors are term counts scaled to length 1, and
    the mean is cut to its best terms.

    Args:
        index: The documents.
        documents: Number of feedback documents.
        terms: Number of terms of the mean that are kept.
        alpha: Weight of the query.
        beta: Weight of the feedback.
        common: Terms in more than this share of all documents are ignored.

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
        docs, _ = feedback(self.index, query, self.documents)
        mean = {}
        if len(docs):
            ids, counts = rare_counts(self.index, docs, self.common)
            lengths = np.linalg.norm(counts, axis=1, keepdims=True)
            vectors = counts / np.maximum(lengths, 1e-9)
            mean = best_terms(self.index, ids, vectors.mean(axis=0), self.terms)
        typed = divided_weights(query.weights, float(np.linalg.norm(list(query.weights.values()))))
        return weighted_sum(typed, self.alpha, mean, self.beta)


@dataclasses.dataclass(frozen=True)
class GreedyCeiling:
    """Makes the change that raises the true metric most, until none raises it.

    A change adds a candidate with one of `weights`, or takes such a share off a term of the query.

    It looks at the judgments of the query itself. So it is no method, but (nearly) the most that a
    choice of weights could gain: it misses pairs of terms that only help together.
    """

    index: BM25Index
    terms: int = 20
    weights: tuple[float, ...] = (0.1, 0.3, 1.0)
    metric: str = "ndcg@10"

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        columns = term_columns(self.index, query)
        scores = query_scores(self.index, query, query.weights)
        now = float(metric_values(self.metric, query, scores[np.newaxis])[0])
        steps, chosen = np.array(self.weights, np.float32), {}
        for _ in range(min(self.terms, len(columns))):
            after = np.stack(
                [metric_values(self.metric, query, scores + step * columns) for step in steps]
            )
            after[:, list(chosen)] = -1.0
            step, best = np.unravel_index(int(np.argmax(after)), after.shape)
            if after[step, best] <= now + 1e-7:
                break
            chosen[int(best)] = self.weights[step]
            now, scores = float(after[step, best]), scores + steps[step] * columns[best]
        return query.changed_weights(chosen)


def mined_candidates(query: Query) -> Query:
    """The query without the candidates that only a rewriter proposes."""
    found_anyway = _feature(query, "mining rank") > 0.0
    is_mined = found_anyway | (_feature(query, "is generated") == 0.0)
    return _with_candidates(query, np.flatnonzero(is_mined))


def as_many_as_mined(query: Query) -> Query:
    """The query with its generated candidates and, of the mined ones, as many as leave the number.

    With these, a ceiling is compared with that of `mined_candidates` at an equal number of terms.
    """
    count = len(mined_candidates(query).candidates)
    order = np.argsort(_feature(query, "is generated") == 0.0, kind="stable")
    return _with_candidates(query, np.sort(order[:count]))


def _feature(query: Query, name: str) -> np.ndarray:
    """[n] a feature of the candidates."""
    return query.candidate_features[: len(query.candidates), CANDIDATE_FEATURES.index(name)]


def _with_candidates(query: Query, places: np.ndarray) -> Query:
    """The query with some of its candidates, and all terms of its own."""
    count = len(query.candidates)
    rows = [*places.tolist(), *range(count, query.options)]
    return query._replace(
        candidates=[query.candidates[place] for place in places],
        candidate_features=query.candidate_features[rows],
        surfaces=tuple(query.surfaces[place] for place in rows),
    )


class TunedMethod(NamedTuple):
    """The best method of a grid.

    Attributes:
        method: The method with the best settings.
        settings: The best settings.
        value: Mean metric of the method on the queries that it was tuned on.
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
) -> TunedMethod:
    """The method with the best mean metric; of equal ones the first.

    Args:
        make: Makes a method from settings, such as `functools.partial(RM3, index)`.
        grid: Setting -> its choices; all combinations are tried.
        queries: Queries of the dev split with relevant documents.
        index: The index to search.
        metric: The metric to maximize.
        workers: Threads; None: one per core.
    """
    best: TunedMethod | None = None
    for choice in itertools.product(*grid.values()):
        settings = dict(zip(grid, choice, strict=True))
        method = make(**settings)
        value = float(np.mean(evaluate(method, queries, index, metric, workers)))
        if best is None or value > best.value:
            best = TunedMethod(method, settings, value)
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
        queries: Queries with their judgments.
        index: The index to search.
        metric: ndcg@k, ap, recall@k or mrr@k.
        workers: Threads; None: one per core.

    Raises:
        ValueError: There is no query, or one without a relevant document.
    """
    without = [query.number for query in queries if not len(query.relevant)]
    if without or not queries:
        raise ValueError(
            f"evaluate() got {len(queries)} queries, {len(without)} without a relevant document "
            f"{without[:5]}: attach judgments, and leave out queries that have none."
        )

    def ranks(query: Query) -> np.ndarray:
        return query_ranks(query, query_scores(index, query, method(query))[np.newaxis])[0]

    with concurrent.futures.ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        relevant_ranks = list(pool.map(ranks, queries))
    return metric_per_query(metric, relevant_ranks, [len(query.relevant) for query in queries])


def feedback(index: BM25Index, query: Query, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The best documents [k] of a query and their scores [k], without the excluded one."""
    docs, scores = index.search(query.weights, count + (query.excluded >= 0))
    allowed = docs != query.excluded
    return docs[allowed][:count], scores[allowed][:count]


def rare_counts(
    index: BM25Index, documents: np.ndarray, common: float
) -> tuple[np.ndarray, np.ndarray]:
    """Terms [u] of documents and their counts [k, u], without terms that many documents contain."""
    ids, counts = feedback_counts(index, documents)
    rare = index.document_frequency[ids] <= max(common * index.documents, 1)
    return ids[rare], counts[:, rare]


def best_terms(
    index: BM25Index, ids: np.ndarray, weights: np.ndarray, count: int
) -> dict[str, float]:
    """The terms with the largest weights; of equal weights, the first in the alphabet."""
    best = best_places(weights, count)
    return {index.terms[ids[place]]: float(weights[place]) for place in best}


def divided_weights(weights: Mapping[str, float], length: float) -> dict[str, float]:
    """Weights divided by a length, unless the length is 0."""
    return {term: weight / (length or 1.0) for term, weight in weights.items()}


def weighted_sum(
    typed: Mapping[str, float], share: float, other: Mapping[str, float], rest: float
) -> dict[str, float]:
    """`share * own + rest * other`, the query's terms first."""
    terms = {**typed, **other}
    return {term: share * typed.get(term, 0.0) + rest * other.get(term, 0.0) for term in terms}


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
    return metric_on_host(name, ranks, np.full(len(ranks), len(query.relevant), np.int32))


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
    return metric_on_host(name, padded, np.array(counts, np.int32))
