"""BM25 as sums of term columns: the scores of `rank_bm25.BM25Okapi`, computed once per index.

A document's score is the sum over the query's terms of
`idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length))`. Nothing in a summand depends
on the rest of the query, so the index keeps each term's *impacts* on the documents that contain it.
To search is to add a few sparse columns; to add a term to a query is to add one more, times its
weight.

Sources: `rank_bm25` 0.2.2, class BM25Okapi (the idf, its floor and the formula); Robertson &
Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond"; Lu 2024, "BM25S",
arXiv:2407.03618 (impacts computed when indexing).
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from kytolly.search.index.collection import text_digest
from kytolly.search.index.files import read_arrays, write_arrays
from kytolly.search.index.ranking import best_nonzero
from kytolly.search.index.tokens import EnglishTokenizer, Tokenizer

FORMAT = 1  # of the saved file
MAX_K1 = 1_000_000  # k1; with more, float32 does not hold the scores
EPSILON = 0.25  # idf of a term in more than half of the documents, in average idfs


class BM25Index:
    """An inverted index of documents with ready-made impacts.

    Attributes:
        terms: [terms] the vocabulary, sorted; positions here are the term ids everywhere.
        term_ids: Term -> its id.
        idf: [terms] with rank_bm25's floor for terms in more than half of the documents.
        document_frequency: [terms] int32, documents that contain the term.
        lengths: [documents] int32, tokens.
        mean_length: Their mean.
        longest: The most of them.
        documents: Number of documents.
        tokenizer: Makes tokens of documents and queries.
        parameters: (k1, b, epsilon).
        digest: Digest of the documents' texts, as `text_digest` makes it.
    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: Tokenizer | None = None,
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = EPSILON,
    ):
        """Index texts.

        Args:
            texts: [documents].
            tokenizer: Default: `EnglishTokenizer()`.
            k1: Saturation of term frequencies: the larger, the later.
            b: Share of length normalization, 0 to 1.
            epsilon: The idf of a term in more than half of the documents, in average idfs.
        """
        if not len(texts):
            raise ValueError(
                "The index got 0 documents, and scores need at least one: check the collection."
            )
        tokenizer = tokenizer or EnglishTokenizer()
        parameters = _checked_parameters(k1, b, epsilon)
        terms, forward = _term_counts(texts, tokenizer)
        self._fill(terms, forward, tokenizer, parameters, text_digest(texts))

    def _fill(
        self,
        terms: list[str],
        forward: sparse.csr_matrix,
        tokenizer: Tokenizer,
        parameters: tuple[float, float, float],
        digest: str,
    ) -> None:
        k1, b, epsilon = parameters
        self.tokenizer, self.parameters, self.digest = tokenizer, parameters, digest
        self.terms = terms
        self.term_ids = {term: index for index, term in enumerate(terms)}
        self.documents = len(forward.indptr) - 1
        self.lengths = np.asarray(forward.sum(axis=1), np.int32).ravel()
        self.mean_length, self.longest = float(self.lengths.mean()), int(self.lengths.max())
        self._forward = forward
        columns = forward.tocsc()
        self.document_frequency = np.diff(columns.indptr).astype(np.int32)
        idf = _okapi_idf(self.documents, self.document_frequency, epsilon)
        self.idf = idf.astype(np.float32)
        count = columns.data.astype(np.float64)
        norm = k1 * (1 - b + b * self.lengths / max(self.mean_length, 1e-9))
        impacts = np.repeat(idf, self.document_frequency) * count * (k1 + 1)
        impacts /= count + norm[columns.indices]
        self._starts = columns.indptr.astype(np.int64)
        self._docs = columns.indices.astype(np.int32)
        self._impacts = impacts.astype(np.float32)

    def postings(self, term: str) -> tuple[np.ndarray, np.ndarray]:
        """The documents in which a term occurs, and its scores there.

        Returns:
            docs: [n] int32 document indices, ascending.
            impacts: [n] the score that the term at weight 1 adds. Both empty for an unknown term.
        """
        term_id = self.term_ids.get(term)
        if term_id is None:
            return self._docs[:0], self._impacts[:0]
        part = slice(self._starts[term_id], self._starts[term_id + 1])
        return self._docs[part], self._impacts[part]

    def postings_of(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The postings of several terms, one after another.

        Args:
            terms: [k] ids.

        Returns:
            docs: [n] integers, of the kind that indexes arrays fastest.
            impacts: [n].
            starts: [k] where each term's postings begin.
        """
        ends = self._starts[terms + 1].tolist()
        parts = [slice(*ends) for ends in zip(self._starts[terms].tolist(), ends, strict=True)]
        counts = self.document_frequency[terms]
        starts = np.cumsum(counts, dtype=np.int64) - counts
        docs, impacts = (
            np.concatenate([column[part] for part in parts])
            for column in (self._docs, self._impacts)
        )
        return docs.astype(np.intp), impacts, starts

    def column(self, term: str) -> np.ndarray:
        """[documents] what a term at weight 1 adds to each document's score."""
        column = np.zeros(self.documents, np.float32)
        docs, impacts = self.postings(term)
        column[docs] = impacts
        return column

    def document_terms(self, doc: int) -> tuple[np.ndarray, np.ndarray]:
        """Term ids [n] int32, ascending, and how often each occurs in a document [n] int32."""
        part = slice(self._forward.indptr[doc], self._forward.indptr[doc + 1])
        return self._forward.indices[part], self._forward.data[part]

    def query_weights(self, text: str) -> dict[str, float]:
        """Term -> how often it occurs in a query, in order of first occurrence.

        Terms that no document contains are kept: they add nothing to scores.
        """
        counts = collections.Counter(self.tokenizer(text))
        return {term: float(count) for term, count in counts.items()}

    def scores(self, weights: Mapping[str, float], start: np.ndarray | None = None) -> np.ndarray:
        """Scores of all documents for a weighted query.

        Args:
            weights: Term -> weight; a term twice in the query has weight 2.
            start: [documents] scores to add to; None: 0.

        Returns:
            [documents], summed in the order of `weights`.
        """
        total = np.zeros(self.documents, np.float32) if start is None else start.copy()
        for term, weight in weights.items():
            docs, impacts = self.postings(term)
            docs = docs.astype(np.intp)  # else NumPy does so twice
            total[docs] += np.float32(weight) * impacts
        return total

    def search(self, weights: Mapping[str, float], top: int) -> tuple[np.ndarray, np.ndarray]:
        """The best documents for a weighted query.

        Args:
            weights: Term -> weight.
            top: At most this many documents; those with score 0 are not found.

        Returns:
            docs: [n] int32, best first; of equal scores the smaller index first.
            scores: [n].
        """
        scores = self.scores(weights)
        docs = best_nonzero(scores, top)
        return docs.astype(np.int32), scores[docs]

    def search_batch(
        self,
        queries: Sequence[Mapping[str, float]],
        top: int,
        workers: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`search` for many queries, in threads.

        Why not bm25s: given these impacts its numpy code took 4.6 s of processor time for 9,904
        queries on 18,026 titles where this takes 1.5 s (bm25s 0.3.16, two x86 cores, best 50). With
        numba it took 0.3 s, after some seconds of compiling; but it has no weights of terms, and
        breaks ties in another way.

        Args:
            queries: [Q] weighted queries.
            top: Documents per query.
            workers: Threads; default: one per processor, at most 8.

        Returns:
            docs: [Q, top] int32, padded with -1.
            scores: [Q, top], padded with 0.
        """
        docs = np.full((len(queries), top), -1, np.int32)
        scores = np.zeros((len(queries), top), np.float32)

        def fill(row: int) -> None:
            best, values = self.search(queries[row], top)
            docs[row, : len(best)], scores[row, : len(best)] = best, values

        with concurrent.futures.ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
            collections.deque(pool.map(fill, range(len(queries))), maxlen=0)
        return docs, scores

    def save(self, path: str | Path) -> None:
        """Write the index to one file, bound to its texts, tokenizer and parameters."""
        bound = {
            "format": FORMAT,
            "digest": self.digest,
            "tokenizer": self.tokenizer.identity,
            "parameters": self.parameters,
            "composed": True,
            "terms": self.terms,
        }
        header = np.frombuffer(json.dumps(bound).encode("utf-8"), np.uint8)
        parts = {
            "header": header,
            "starts": self._forward.indptr,
            "terms": self._forward.indices,
            "counts": self._forward.data,
        }
        write_arrays(Path(path), parts)

    @classmethod
    def load(
        cls,
        path: str | Path,
        texts: Sequence[str] | None = None,
        tokenizer: Tokenizer | None = None,
        parameters: tuple[float, float, float] | None = None,
    ) -> BM25Index:
        """An index that `save` wrote.

        Args:
            path: The file.
            texts: The documents that it must have been made of; None: do not check.
            tokenizer: The tokenizer that it must have been made with. Default: EnglishTokenizer().
            parameters: The (k1, b, epsilon) that it must have; None: those of the file.

        Raises:
            ValueError: The file is no index, or one of other texts, tokenizer or parameters.
        """
        tokenizer = tokenizer or EnglishTokenizer()
        header, forward = _read(Path(path))
        wanted = {
            "format": FORMAT,
            "tokenizer": tokenizer.identity,
            "digest": header["digest"] if texts is None else text_digest(texts),
            "parameters": header["parameters"] if parameters is None else parameters,
        }
        for key, value in wanted.items():
            if header[key] != value:
                raise ValueError(
                    f"The index {path} has the {key} {header[key]!r}; expected {value!r}, or its "
                    "scores would be those of something else: delete the file and index again."
                )
        if texts is not None and len(forward.indptr) - 1 != len(texts):
            raise ValueError(
                f"The index {path} holds {len(forward.indptr) - 1} documents; expected "
                f"{len(texts)}: it was altered: delete the file and index again."
            )
        if texts is not None and "composed" not in header and not _all_composed(texts):
            raise ValueError(
                f"The index {path} is of an earlier version, which tore words whose accents are "
                "characters of their own; expected whole words: delete the file and index again."
            )
        index = cls.__new__(cls)
        index._fill(header["terms"], forward, tokenizer, header["parameters"], header["digest"])
        return index


def _all_composed(texts: Sequence[str]) -> bool:
    return all(unicodedata.is_normalized("NFC", text) for text in texts)


def _read(path: Path) -> tuple[dict, sparse.csr_matrix]:
    """The content of a saved index: the header, and how often each term occurs in each document."""
    try:
        header, *parts = read_arrays(path, ("header", "starts", "terms", "counts"))
        bound = json.loads(header.tobytes())
        if not {"format", "digest", "tokenizer", "parameters", "terms"} <= bound.keys():
            raise KeyError("header")
        bound["parameters"] = _checked_parameters(*bound["parameters"])
        return bound, _checked_counts(bound["terms"], *parts)
    except Exception as error:  # zipfile, numpy, scipy and json each have their own
        raise ValueError(
            f"{path} cannot be read as an index ({type(error).__name__}: {error}); expected a "
            "file that `save` wrote: delete it and index again."
        ) from None


def _checked_parameters(k1: float, b: float, epsilon: float) -> tuple[float, float, float]:
    if not (0 <= k1 <= MAX_K1 and 0 <= b <= 1 and abs(epsilon) <= MAX_K1):
        raise ValueError(
            f"BM25 got k1 {k1}, b {b} and epsilon {epsilon}; expected k1 from 0 to {MAX_K1:,}, b "
            "from 0 to 1 and a finite epsilon: change them."
        )
    return float(k1), float(b), float(epsilon)


def _checked_counts(
    words: list[str], starts: np.ndarray, terms: np.ndarray, counts: np.ndarray
) -> sparse.csr_matrix:
    """The matrix of a saved index. SciPy's compiled code crashes on one that is not whole."""
    if not all(isinstance(word, str) for word in words) or words != sorted(set(words)):
        raise ValueError("its terms are not different words in order")
    for part in (starts, terms, counts):
        if part.ndim != 1 or part.dtype not in (np.int32, np.int64):
            raise ValueError(f"an array has the shape {part.shape} and the kind {part.dtype}")
    if len(starts) < 2 or counts.min(initial=1) < 1:
        raise ValueError("it has no document, or counts below 1")
    forward = sparse.csr_matrix((counts, terms, starts), (len(starts) - 1, len(words)))
    forward.check_format(full_check=True)
    if forward.nnz != len(terms) or not forward.has_canonical_format:
        raise ValueError("its documents' terms are not in order")
    most = np.iinfo(np.int32).max
    if counts.max(initial=1) > most or forward.sum(axis=1, dtype=np.int64).max() > most:
        raise ValueError("its counts are too large")
    forward.data = forward.data.astype(np.int32)
    return forward


def _term_counts(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[list[str], sparse.csr_matrix]:
    """The vocabulary, sorted, and how often each term occurs in each document."""
    first_ids: dict[str, int] = collections.defaultdict()
    first_ids.default_factory = first_ids.__len__  # a new term gets the next number
    tokens: list[np.ndarray] = []
    for text in texts:
        words = tokenizer(text)
        tokens.append(np.fromiter(map(first_ids.__getitem__, words), np.int32, len(words)))
    terms = sorted(first_ids)
    sorted_ids = np.empty(len(terms), np.int32)
    sorted_ids[np.fromiter((first_ids[term] for term in terms), np.int64, len(terms))] = np.arange(
        len(terms), dtype=np.int32
    )
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(part) for part in tokens], out=starts[1:])
    indices = sorted_ids[np.concatenate(tokens)]
    counts = np.ones(len(indices), np.int32)
    forward = sparse.csr_matrix((counts, indices, starts), (len(texts), len(terms)))
    forward.sum_duplicates()
    return terms, forward


def _okapi_idf(documents: int, frequency: np.ndarray, epsilon: float) -> np.ndarray:
    """[terms] float64 idf; where it is negative, epsilon times the mean over all terms.

    Source: `rank_bm25.BM25Okapi._calc_idf`. The mean is taken before the floor is put in.
    """
    idf = np.log(documents - frequency + 0.5) - np.log(frequency + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf) if len(idf) else idf
