"""Embeddings of an index's terms: which are near a query, whatever documents hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.embedding import Encoder

MAX_TERMS = 20_000
MIN_DOCUMENTS = 2  # that hold a term; one of a single document leads to that document alone


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
        missing, found = {index.terms[term] for term in ids}, {}
        for text in texts:
            if not missing:
                break
            for term, word in index.tokenizer.surface(text):
                if term in missing:
                    missing.remove(term)
                    found[term] = word
        spellings = {index.terms[term]: found[index.terms[term]] for term in ids}
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
        places = np.flatnonzero(left)
        order = np.argsort(-products[places], kind="stable")
        return self.ids[places[order[:count]]].astype(np.int64)
