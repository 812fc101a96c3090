"""BM25 and the cosines of embeddings in one score.

A fused score is `bm25 + fusion * max(bm25) * cosine`, with the maximum over all documents that may
be found under the query as it was typed. So a term that is added to the query adds its column of
BM25 scores, as without fusion.

Source: Bruch, Gai & Ingber 2023, "An Analysis of Fusion Functions for Hybrid Retrieval",
arXiv:2210.11934 (a convex combination of scaled scores).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.embedding import EmbeddingCache, Encoder, make_encoder
from kytolly.search.index.ranking import best_nonzero
from kytolly.search.index.tokens import Tokenizer

BATCH = 4_096  # texts embedded at once
REMEMBERED = 4  # queries whose cosines are kept
TILE = 64  # documents transposed at once; with more, the processor's cache does not hold them
MAX_TERMS = 20_000
MIN_DOCUMENTS = 2  # that hold a term; one of a single document leads to that document alone
NONE = -1  # in place of a document


class DocumentVectors:
    """Embeddings of all documents.

    Args:
        vectors: [documents, d] of length 1. They are kept in half precision, as they are saved.
    """

    def __init__(self, vectors: np.ndarray):
        self.half = np.asarray(vectors, np.float16)
        # A product of a vector and rows as long as there are documents takes an eighth less time
        # than one with a row for each document.
        self._transposed = np.empty(self.half.shape[::-1], np.float32)
        for first in range(0, len(self.half), TILE):
            part = slice(first, first + TILE)
            self._transposed[:, part] = self.half[part].astype(np.float32).T
        # Mining and both rankings of a query ask for the same.
        self._cosines = functools.lru_cache(REMEMBERED)(self._compute_cosines)

    def __reduce__(self):
        return type(self), (self.half,)  # a third of the bytes for another process

    @classmethod
    def of_texts(cls, texts: Sequence[str], encoder: Encoder) -> DocumentVectors:
        """The embeddings of texts."""
        parts = [
            encoder.encode(list(texts[first : first + BATCH]))
            for first in range(0, len(texts), BATCH)
        ]
        return cls(np.concatenate(parts))

    def __getitem__(self, documents: np.ndarray) -> np.ndarray:
        """[k, d] embeddings of some documents."""
        return self.half[documents].astype(np.float32)

    def cosines(self, vector: np.ndarray) -> np.ndarray:
        """[documents] cosines with a vector [d] of length 1; below 0 counts as 0. Read-only."""
        return self._cosines(vector.astype(np.float32).tobytes())

    def scores(self, vector: np.ndarray, fusion: float, typed: np.ndarray) -> np.ndarray:
        """[documents] what cosines with a vector [d] add to the scores of a query.

        Args:
            vector: Embedding of the query.
            fusion: Weight of the cosines.
            typed: [documents] BM25 of the query as it was typed, 0 for what may not be found.
        """
        return np.float32(fusion * score_unit(typed)) * self.cosines(vector)

    def _compute_cosines(self, vector: bytes) -> np.ndarray:
        cosines = np.frombuffer(vector, np.float32) @ self._transposed
        np.maximum(cosines, 0.0, out=cosines)
        cosines.flags.writeable = False
        return cosines


def fused_scores(
    index: BM25Index,
    weights: Mapping[str, float],
    excluded: int | None,
    documents: DocumentVectors | None,
    vector: np.ndarray | None,
    fusion: float,
) -> np.ndarray:
    """[documents] float32 scores of a query.

    Args:
        index: The documents.
        weights: Term -> its weight in the query.
        excluded: A document that may not be found; None: there is none.
        documents: Embeddings of the documents; None: BM25 alone.
        vector: Embedding of the query; None: BM25 alone.
        fusion: Weight of the cosines; 0: BM25 alone.
    """
    scores = index.scores(weights)
    if excluded is not None:
        scores[excluded] = 0.0
    if documents is not None and vector is not None and fusion:
        scores += documents.scores(vector, fusion, scores)
        if excluded is not None:
            scores[excluded] = 0.0
    return scores


def score_unit(scores: np.ndarray) -> float:
    """The score of a cosine of 1 at `fusion` 1: the highest score, or 1 where all are 0."""
    highest = float(scores.max(initial=0.0))
    return highest if highest > 0.0 else 1.0


class TermVectors:
    """Embeddings of the most frequent terms, each as a text spells it.

    Args:
        spellings: Term -> a word that it stands for.
        ids: [v] the terms' ids in the index.
        vectors: [v, d] the words' embeddings, of length 1.
    """

    def __init__(self, spellings: dict[str, str], ids: np.ndarray, vectors: np.ndarray):
        self.spellings, self.ids, self._vectors = spellings, ids, vectors

    @classmethod
    def of_index(cls, index: BM25Index, texts: Iterable[str], encoder: Encoder) -> TermVectors:
        """The embeddings of an index's terms.

        Args:
            index: The documents.
            texts: Their texts.
            encoder: Embeds the words.
        """
        frequency = index.document_frequency
        order = np.argsort(-frequency, kind="stable")[:MAX_TERMS]
        ids = np.sort(order[frequency[order] >= MIN_DOCUMENTS])
        missing, first_words = {index.terms[term] for term in ids}, {}
        for text in texts:
            if not missing:
                break
            for term, word in index.tokenizer.surface(text):
                if term in missing:
                    missing.remove(term)
                    first_words[term] = word
        spellings = {index.terms[term]: first_words[index.terms[term]] for term in ids}
        return cls(spellings, ids, encoder.encode(list(spellings.values())))

    def nearest(self, vector: np.ndarray, count: int, excluded: Sequence[int]) -> np.ndarray:
        """Ids of the terms with the largest products with a vector [d], the nearest first.

        Args:
            vector: The vector.
            count: Most terms.
            excluded: Ids of terms that are left out.
        """
        products = self._vectors @ vector
        left = ~np.isin(self.ids, excluded)
        rows = np.flatnonzero(left)
        order = np.argsort(-products[rows], kind="stable")
        return self.ids[rows[order[:count]]].astype(np.int64)


class FirstSearch(Protocol):
    """A search of all documents of a collection.

    Attributes:
        name: For readers.
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
        cls,
        texts: Sequence[str],
        k1: float = 1.5,
        b: float = 0.75,
        fusion: float = 1.0,
        tokenizer: Tokenizer | None = None,
    ) -> FusedSearch:
        """The search of texts; without `fusion` nothing is embedded, without tokenizer English."""
        encoder = make_encoder("wordllama") if fusion else None  # says first what is missing
        index = BM25Index(texts, tokenizer, k1, b)
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
            itself = collection.own_document(query)
            weights = self.index.query_weights(text)
            fused = fused_scores(self.index, weights, itself, self.documents, vector, self.fusion)
            best = best_nonzero(fused, top)
            documents[row, : len(best)], scores[row, : len(best)] = best, fused[best]
        return documents, scores
