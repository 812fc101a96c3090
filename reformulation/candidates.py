"""From query texts to `Query` tuples: mined candidates, with what embeddings say about them."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kytolly.reformulation.mining import QUERY_FIGURES, TERM_FIGURES, Mined, Miner, MiningSettings
from kytolly.reformulation.mining_processes import mine_texts
from kytolly.reformulation.table import Query
from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.corpus import Collection
from kytolly.retrieval.embedding import EmbeddingCache

CANDIDATE_FEATURES = (
    *TERM_FIGURES,
    "cosine to query",
    "cosine to feedback",
    "cosine to best document",
    "cosine to a query word",
    "cosine to other candidates",
    "cosine to query, above the mean",
    "cosine to feedback, above the mean",
)
STATE_FEATURES = (
    *QUERY_FIGURES,
    "query's cosine to feedback",
    "query's cosine to best document",
    "coherence of feedback",
    "mean cosine of candidates to query",
)
TOGETHER = 512  # queries whose texts are embedded in one batch


class Skipped(NamedTuple):
    """A query that cannot be reformulated.

    Attributes:
        number: Place in the collection.
        reason: `mining.NO_TOKEN` or `mining.NO_CANDIDATE`.
    """

    number: int
    reason: str


def mine(
    collection: Collection,
    numbers: Sequence[int],
    index: BM25Index,
    cache: EmbeddingCache,
    settings: MiningSettings | None = None,
    workers: int | None = None,
    skipped: list[Skipped] | None = None,
) -> list[Query]:
    """Queries of a collection with their candidates, in the order of `numbers`.

    No judgement is looked at: `relevant` is empty until `with_judgements`. A query that is a
    document of the collection does not find it.

    Args:
        collection: Texts of documents and queries.
        numbers: Places of the queries in the collection.
        index: Of the collection's documents.
        cache: Of embeddings; what it lacks is encoded, each text once.
        settings: How to mine. Default: `MiningSettings()`.
        workers: Processes; None: one per core where that pays. The result does not depend on it.
        skipped: Gets the queries that are left out, and why.

    Returns:
        At most `len(numbers)` queries.
    """
    miner = Miner(index, collection.texts, settings or MiningSettings())
    own = [collection.itself(number) for number in numbers]
    excluded = [-1 if document is None else document for document in own]
    texts = [collection.queries[number] for number in numbers]
    found = mine_texts(miner, texts, excluded, workers)
    kept = []
    for number, text, without, mined in zip(numbers, texts, excluded, found, strict=True):
        if isinstance(mined, Mined):
            kept.append((number, text, without, mined))
        elif skipped is not None:
            skipped.append(Skipped(number, mined))
    queries: list[Query] = []
    for first in range(0, len(kept), TOGETHER):
        queries += _with_embeddings(kept[first : first + TOGETHER], collection.texts, cache)
    return queries


def mine_text(
    text: str,
    texts: Sequence[str],
    index: BM25Index,
    cache: EmbeddingCache,
    settings: MiningSettings | None = None,
) -> Query:
    """One query that somebody typed, numbered -1.

    Args:
        text: The query.
        texts: The documents, [documents].
        index: Of those documents.
        cache: Of embeddings.
        settings: How to mine. Default: `MiningSettings()`.

    Raises:
        ValueError: The query has no word that a document contains, or no candidate.
    """
    mined = Miner(index, texts, settings or MiningSettings()).mine(text)
    if not isinstance(mined, Mined):
        raise ValueError(
            f"The query {text!r} has {mined}, so there is nothing to add to it: use other words."
        )
    return _with_embeddings([(-1, text, -1, mined)], texts, cache)[0]


def with_judgements(queries: Iterable[Query], collection: Collection, split: str) -> list[Query]:
    """The queries, with the documents that a split judges relevant, rising."""
    return [
        query._replace(relevant=np.array(collection.relevant(query.number, split), np.int64))
        for query in queries
    ]


def skip_report(skipped: Sequence[Skipped]) -> str:
    """Such as "3 queries skipped: 2 no candidate term, 1 no token that any document contains"."""
    counts = collections.Counter(skip.reason for skip in skipped).most_common()
    parts = ", ".join(f"{count} {reason}" for reason, count in counts)
    noun = "query" if len(skipped) == 1 else "queries"
    return f"{len(skipped)} {noun} skipped" + (f": {parts}" if parts else "")


def _with_embeddings(
    mined: Sequence[tuple[int, str, int, Mined]], texts: Sequence[str], cache: EmbeddingCache
) -> list[Query]:
    """Queries from what was mined, their texts embedded together, each once."""
    wanted: dict[str, int] = {}  # text -> its row
    rows = []
    for _, text, _, found in mined:
        documents = [texts[doc] for doc in found.feedback]
        parts = ([text], found.words, documents, found.surfaces)
        rows.append([[wanted.setdefault(one, len(wanted)) for one in part] for part in parts])
    vectors = cache.get_batch(list(wanted))
    queries = []
    for (number, _, without, found), (query, words, documents, surfaces) in zip(
        mined, rows, strict=True
    ):
        terms = vectors[surfaces]
        own, state = embedding_features(
            terms, vectors[query[0]], vectors[words], vectors[documents], found.shares
        )
        queries.append(
            Query(
                number=number,
                weights=found.weights,
                candidates=found.candidates,
                candidate_features=np.concatenate([found.term_figures, own], axis=1),
                state_features=np.concatenate([found.query_figures, state]),
                similarity=terms @ terms.T,
                query_similarity=terms @ vectors[query[0]],
                relevant=np.zeros(0, np.int64),
                excluded=without,
                surfaces=tuple(found.surfaces),
            )
        )
    return queries


def embedding_features(
    terms: np.ndarray,
    query: np.ndarray,
    words: np.ndarray,
    documents: np.ndarray,
    shares: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What embeddings say about candidates, and about the query.

    Args:
        terms: [n, d] of the candidates.
        query: [d] of the query.
        words: [w, d] of the query's words.
        documents: [k, d] of the feedback documents, best first.
        shares: [k] their weights in the feedback's centroid.

    Returns:
        candidates: [n, 7], the last of CANDIDATE_FEATURES.
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
        terms @ terms.mean(axis=0),
        to_query - to_query.mean(),
        to_feedback - to_feedback.mean(),
    ]
    state = [query @ centroid, query @ documents[0], spread, to_query.mean()]
    return np.stack(columns, axis=1).astype(np.float32), np.array(state, np.float32)
