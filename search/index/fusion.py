"""BM25 and the cosines of embeddings in one score.

A fused score is `bm25 + fusion * max(bm25) * cosine`, with the maximum over all documents that may
be found under the query as it was typed. So a term that is added to the query adds its column of
BM25 scores, as without fusion.

Source: Bruch, Gai & Ingber 2023, "An Analysis of Fusion Functions for Hybrid Retrieval",
arXiv:2210.11934 (a convex combination of scaled scores).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.embedding import Encoder

BATCH = 4_096  # texts embedded at once
REMEMBERED = 4  # queries whose cosines are kept
TILE = 64  # documents transposed at once; with more, the processor's cache does not hold them


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
        found = np.frombuffer(vector, np.float32) @ self._transposed
        np.maximum(found, 0.0, out=found)
        found.flags.writeable = False
        return found


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
