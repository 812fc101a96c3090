"""A query that is ready to be reformulated: from its text, with the features of its candidates."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.embedding import EmbeddingCache
from kytolly.search.index.fusion import DocumentVectors, TermVectors
from kytolly.search.reformulate.mining import Miner, MiningResult, mine_texts
from kytolly.search.reformulate.mining_features import (
    QUERY_FEATURES,
    TERM_FEATURES,
    MiningRules,
)

CANDIDATE_FEATURES = (
    *TERM_FEATURES,
    "cosine to query",
    "cosine to feedback",
    "cosine to best document",
    "cosine to a query word",
    "cosine to other candidates",
    "cosine to query, above the mean",
    "cosine to feedback, above the mean",
)
IN_QUERY = CANDIDATE_FEATURES.index("is in the query")
STATE_FEATURES = (
    *QUERY_FEATURES,
    "query's cosine to feedback",
    "query's cosine to best document",
    "coherence of feedback",
    "mean cosine of candidates to query",
)
BATCH = 512  # queries whose texts are embedded at once


class Query(NamedTuple):
    """One query, ready to be reformulated.

    Attributes:
        number: Place in the collection.
        weights: Terms of the query and their weights.
        candidates: [n] terms that may be added.
        candidate_features: [n + m, F] features of the candidates, then of `lowerable`; at most
            `N` rows.
        state_features: [G] features of the query.
        vector: [d] embedding of the query, of length 1.
        relevant: Documents judged relevant; empty where there is no judgment.
        excluded: A document that is the query itself and must not be found; -1 for none.
        surfaces: [n + m] how each is spelled, to be shown.
        lowerable: [m] terms of the query that may be lowered.
    """

    number: int
    weights: dict[str, float]
    candidates: list[str]
    candidate_features: np.ndarray
    state_features: np.ndarray
    vector: np.ndarray
    relevant: np.ndarray
    excluded: int = -1
    surfaces: tuple[str, ...] = ()
    lowerable: tuple[str, ...] = ()

    @property
    def options(self) -> int:
        """`n + m`, the number of terms whose weight an agent decides on."""
        return len(self.candidates) + len(self.lowerable)

    def changed_weights(self, changes: Mapping[int, float]) -> dict[str, float]:
        """Term -> weight after changes, the query's own terms first.

        Args:
            changes: Place in `candidates` -> weight of the term that is added; places after those,
                in `lowerable` -> the share of its weight that a term of the query loses.
        """
        weights, count = dict(self.weights), len(self.candidates)
        for place, change in changes.items():
            if place < count:
                weights[self.candidates[place]] = change
            else:
                weights[self.lowerable[place - count]] *= 1.0 - change
        return weights

    @property
    def has_relevant(self) -> bool:
        """True if any document that may be found is relevant."""
        return any(doc != self.excluded for doc in self.relevant)


class SearchRules(NamedTuple):
    """The limits of a reformulation, and training's view of a search.

    Attributes:
        metric: The reward is the change of this metric, such as "ndcg@10".
        max_terms: Most terms that are added to a query.
        max_candidates: Most terms of a query that an agent decides on, `N`.
        pool_documents: Documents of each query that training ranks, `P`.
        typed_shares: Least share of the weight that typed words keep, in searches without cosines
            and with them; None: any.
    """

    metric: str = "ndcg@10"
    max_terms: int = 20
    max_candidates: int = 72
    pool_documents: int = 512
    typed_shares: tuple[float | None, float | None] = (None, None)

    def typed_share(self, fusion: float) -> float | None:
        """That of searches with a weight of the cosines."""
        return self.typed_shares[fusion > 0.0]


class SkippedQuery(NamedTuple):
    """A query that cannot be reformulated.

    Attributes:
        number: Place in the collection.
        reason: `result.NO_TOKEN` or `mining.NO_CANDIDATE`.
    """

    number: int
    reason: str


def mine(
    collection: Collection,
    numbers: Sequence[int],
    index: BM25Index,
    cache: EmbeddingCache,
    documents: DocumentVectors,
    rules: MiningRules | None = None,
    workers: int | None = None,
    skipped: list[SkippedQuery] | None = None,
    term_vectors: TermVectors | None = None,
    generated: Sequence[Mapping[str, float]] | None = None,
) -> list[Query]:
    """Queries of a collection with their candidates, in the order of `numbers`.

    No judgment is read: `relevant` is empty until `with_judgments`. A query that is a
    document of the collection does not find it.

    Args:
        collection: Texts of documents and queries.
        numbers: Places of the queries in the collection.
        index: Index of the collection's documents.
        cache: Cache of embeddings; missing texts are encoded once each.
        documents: Embeddings of the collection's documents.
        rules: Settings of mining. Default: `MiningRules()`.
        workers: Processes; None: one per core where that pays. The result does not depend on it.
        skipped: Receives the queries that are left out, with the reason.
        term_vectors: Embeddings of terms, where the rules ask for neighbors.
        generated: For each of `numbers` the terms that a rewriter proposes, best first, and their
            log-probabilities; None: there is no rewriter.

    Returns:
        At most `len(numbers)` queries.
    """
    miner = Miner(index, collection.texts, rules or MiningRules(), documents, term_vectors)
    documents_of_queries = [collection.own_document(number) for number in numbers]
    excluded = [-1 if document is None else document for document in documents_of_queries]
    texts = [collection.queries[number] for number in numbers]
    vectors = list(cache.get_batch(texts))
    results = mine_texts(miner, texts, excluded, vectors, workers, generated)
    minable = []
    for number, vector, without, result in zip(numbers, vectors, excluded, results, strict=True):
        if isinstance(result, MiningResult):
            minable.append((number, vector, without, result))
        elif skipped is not None:
            skipped.append(SkippedQuery(number, result))
    queries: list[Query] = []
    for first in range(0, len(minable), BATCH):
        queries += _make_queries(minable[first : first + BATCH], documents, cache)
    return queries


def with_judgments(queries: Iterable[Query], collection: Collection, split: str) -> list[Query]:
    """The queries, with the documents that a split judges relevant, rising."""
    return [
        query._replace(relevant=np.array(collection.relevant(query.number, split), np.int64))
        for query in queries
    ]


def skip_report(skipped: Sequence[SkippedQuery]) -> str:
    """A line such as "2 queries skipped: 1 no candidate term, 1 no token ..."."""
    counts = collections.Counter(skip.reason for skip in skipped).most_common()
    parts = ", ".join(f"{count} {reason}" for reason, count in counts)
    noun = "query" if len(skipped) == 1 else "queries"
    return f"{len(skipped)} {noun} skipped" + (f": {parts}" if parts else "")


def _make_queries(
    results: Sequence[tuple[int, np.ndarray, int, MiningResult]],
    documents: DocumentVectors,
    cache: EmbeddingCache,
) -> list[Query]:
    """Queries from the results of mining; each of their words is embedded once."""
    wanted: dict[str, int] = {}  # text -> its row
    rows = [
        [
            [wanted.setdefault(text, len(wanted)) for text in part]
            for part in (mined.words, mined.surfaces)
        ]
        for *_, mined in results
    ]
    vectors = cache.get_batch(list(wanted))
    queries = []
    for (number, vector, without, mined), (words, surfaces) in zip(results, rows, strict=True):
        embedded, state = embedding_features(
            vectors[surfaces],
            vector,
            vectors[words],
            documents[mined.feedback],
            mined.shares,
            len(mined.candidates),
        )
        queries.append(
            Query(
                number=number,
                weights=mined.weights,
                candidates=mined.candidates,
                candidate_features=np.concatenate([mined.term_features, embedded], axis=1),
                state_features=np.concatenate([mined.query_features, state]),
                vector=vector,
                relevant=np.zeros(0, np.int64),
                excluded=without,
                surfaces=tuple(mined.surfaces),
                lowerable=tuple(mined.lowerable),
            )
        )
    return queries


def embedding_features(
    terms: np.ndarray,
    query: np.ndarray,
    words: np.ndarray,
    documents: np.ndarray,
    shares: np.ndarray,
    added: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Features that embeddings give of the candidates and of the query.

    Args:
        terms: [n + m, d] vectors of the candidates, then of terms of the query.
        query: [d] vector of the query.
        words: [w, d] vectors of the query's words.
        documents: [k, d] vectors of the feedback documents, best first.
        shares: [k] weights of the documents in the feedback's centroid.
        added: `n`; means are over the candidates alone.

    Returns:
        candidates: [n + m, 7], the last of CANDIDATE_FEATURES.
        state: [4], the last of STATE_FEATURES.
    """
    centroid = shares @ documents
    spread = float(np.linalg.norm(centroid))  # 1 where all documents say the same
    centroid = centroid / max(spread, 1e-9)
    to_query, to_feedback = terms @ query, terms @ centroid
    columns = [
        to_query,
        to_feedback,
        terms @ documents[0],
        (terms @ words.T).max(axis=1) if len(words) else to_query,
        terms @ terms[:added].mean(axis=0),
        to_query - to_query[:added].mean(),
        to_feedback - to_feedback[:added].mean(),
    ]
    state = [query @ centroid, query @ documents[0], spread, to_query[:added].mean()]
    return np.stack(columns, axis=1).astype(np.float32), np.array(state, np.float32)
