"""The search whose best documents are ranked anew: BM25, with or without cosines of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.embedding import EmbeddingCache, make_encoder
from kytolly.search.index.fusion import DocumentVectors, fused_scores
from kytolly.search.index.ranking import best_nonzero

NONE = -1  # in place of a document


class FirstSearch(Protocol):
    """A search of all documents of a collection.

    Attributes:
        name: What a reader calls it.
        identity: Searches of equal identity find the same documents with the same scores.
        index: The documents.
    """

    name: str
    identity: str
    index: BM25Index

    def search(
        self, collection: Collection, queries: Sequence[int], top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best documents for queries, without a document that is the query itself.

        Args:
            collection: The documents that were indexed, with any queries.
            queries: [Q] places in its queries.
            top: Documents of a query; one with score 0 is not found.

        Returns:
            documents: [Q, top] int32, best first, padded with `NONE`.
            scores: [Q, top] float32, padded with 0.
        """
        ...


class FusedSearch:
    """BM25 and the cosines of embeddings in one score.

    Args:
        index: The documents.
        fusion: Weight of the cosines; 0: BM25 alone.
        documents, cache: Embeddings of the documents and of queries; None with BM25 alone.
    """

    def __init__(
        self,
        index: BM25Index,
        fusion: float = 0.0,
        documents: DocumentVectors | None = None,
        cache: EmbeddingCache | None = None,
    ):
        self.index, self.fusion, self.documents, self.cache = index, fusion, documents, cache
        self.name = "fused" if fusion else "BM25"
        self.identity = f"BM25 {index.parameters} of {index.tokenizer.identity} {index.digest}"
        if cache is not None:
            self.identity += f" and {fusion:g} times {cache.encoder.identity}"

    @classmethod
    def of_texts(
        cls, texts: Sequence[str], k1: float = 1.5, b: float = 0.75, fusion: float = 1.0
    ) -> FusedSearch:
        """The search of texts; without `fusion` nothing is embedded."""
        encoder = make_encoder("wordllama") if fusion else None  # says first what is missing
        index = BM25Index(texts, k1=k1, b=b)
        if encoder is None:
            return cls(index)
        vectors = DocumentVectors.of_texts(texts, encoder)
        return cls(index, fusion, vectors, EmbeddingCache(encoder))

    def search(
        self, collection: Collection, queries: Sequence[int], top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best documents for queries, as `FirstSearch` says."""
        documents = np.full((len(queries), top), NONE, np.int32)
        scores = np.zeros((len(queries), top), np.float32)
        texts = [collection.queries[query] for query in queries]
        vectors = [None] * len(texts) if self.cache is None else self.cache.get_batch(texts)
        for row, (query, text, vector) in enumerate(zip(queries, texts, vectors, strict=True)):
            own = collection.own_document(query)
            weights = self.index.query_weights(text)
            found = fused_scores(self.index, weights, own, self.documents, vector, self.fusion)
            best = best_nonzero(found, top)
            documents[row, : len(best)], scores[row, : len(best)] = best, found[best]
        return documents, scores
