"""Candidate terms from the documents that a first search finds, and what speaks for each.

Only the index and the texts are looked at, never a judgement. Embeddings come later
(retrieval/candidates.py), so that this part runs in processes that load neither TensorFlow nor an
encoder.

Sources: Lavrenko & Croft 2001, "Relevance-Based Language Models" (pseudo-relevance feedback); Cao
et al. 2008, "Selecting Good Expansion Terms for Pseudo-Relevance Feedback" (the statistics).
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kytolly.retrieval.bm25 import BM25Index

NO_TOKEN = "no token that any document contains"
NO_CANDIDATE = "no candidate term"

TERM_FIGURES = (
    "idf",
    "document share",
    "mining rank",
    "mining score",
    "feedback documents",
    "feedback frequency",
    "repetition",
    "in best document",
    "in opening",
    "clarity",
    "pmi, best",
    "npmi, best",
    "npmi, mean",
    "npmi, rarest query term",
    "query score where it occurs",
    "lift of best document",
    "lift of feedback",
    "lift, spread",
    "newcomers",
    "overtakes",
    "length",
    "has digit",
)
QUERY_FIGURES = (
    "query length",
    "unknown terms",
    "best score",
    "score gap to second",
    "score gap to last",
    "score entropy",
    "idf sum",
    "idf largest",
    "idf mean",
    "candidates",
    "documents found",
)


class MiningSettings(NamedTuple):
    """How candidates are mined.

    Attributes:
        feedback_documents: Best documents that terms are taken from.
        candidates: Most candidates of a query.
        opening_tokens: Tokens at a document's beginning that are taken for a title.
        weight: Of an added term, for the figures that say what adding it would do.
    """

    feedback_documents: int = 10
    candidates: int = 50
    opening_tokens: int = 10
    weight: float = 0.3


class Mined(NamedTuple):
    """One query's candidates, with `n` terms and `k` feedback documents.

    Attributes:
        weights: Terms of the query and their weights.
        words: The query's words as they stand, stop words left out.
        candidates: [n] terms, best first.
        surfaces: [n] how each is most often written in the feedback documents.
        term_figures: [n, len(TERM_FIGURES)] float32.
        query_figures: [len(QUERY_FIGURES)] float32.
        feedback: [k] int32 documents, best first.
        shares: [k] float32 of their scores in the sum.
    """

    weights: dict[str, float]
    words: list[str]
    candidates: list[str]
    surfaces: list[str]
    term_figures: np.ndarray
    query_figures: np.ndarray
    feedback: np.ndarray
    shares: np.ndarray


class Miner:
    """Mines one query after the other from one index.

    Args:
        index: The documents.
        texts: Those documents, [documents].
        settings: How.
    """

    def __init__(self, index: BM25Index, texts: Sequence[str], settings: MiningSettings):
        if len(texts) != index.documents:
            raise ValueError(
                f"The index holds {index.documents} documents, but there are {len(texts)} texts: "
                "give the texts that it was made of."
            )
        self.index, self.texts, self.settings = index, texts, settings
        self.frequency = index.document_frequency.astype(np.float64)
        self._written = functools.lru_cache(20_000)(self._count_written)

    def mine(self, text: str, excluded: int = -1) -> Mined | str:
        """Candidates of a query, or why there are none.

        Args:
            text: The query.
            excluded: A document that must not be found, -1 for none.
        """
        weights = self.index.query_weights(text)
        known = [self.index.term_ids[term] for term in weights if term in self.index.term_ids]
        if not known:
            return NO_TOKEN
        scores = self.index.scores(weights)
        if excluded >= 0:
            scores[excluded] = 0.0
        feedback = _best(scores, self.settings.feedback_documents)
        shares = scores[feedback] / max(float(scores[feedback].sum()), 1e-9)
        terms, counts = feedback_counts(self.index, feedback)
        own = np.isin(terms, known)
        terms, counts = terms[~own], counts[:, ~own]
        mining = self._mining_scores(terms, counts, feedback, shares)
        best = np.argsort(-mining, kind="stable")[: self.settings.candidates]
        terms, counts, mining = terms[best], counts[:, best], mining[best]
        if not len(terms):
            return NO_CANDIDATE
        names = [self.index.terms[term] for term in terms]
        written = self._surfaces(names, feedback)
        found = _Found(terms, counts, mining, np.array(known), scores, feedback, shares)
        return Mined(
            weights=weights,
            words=[word for _, word in self.index.tokenizer.surface(text)],
            candidates=names,
            surfaces=[surface for surface, _ in written],
            term_figures=self._term_figures(found, written),
            query_figures=self._query_figures(found, weights),
            feedback=feedback.astype(np.int32),
            shares=shares.astype(np.float32),
        )

    def _mining_scores(
        self, terms: np.ndarray, counts: np.ndarray, feedback: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        """[u] TF-IDF of terms in the feedback documents, weighted with the documents' scores."""
        lengths = np.maximum(self.index.lengths[feedback], 1)
        average = max(float(self.index.lengths.mean()), 1.0)
        frequency = counts / (counts + (lengths / average)[:, np.newaxis])  # saturates as BM25's
        inverse = np.log((self.index.documents + 1) / self.frequency[terms])
        return (shares @ frequency) * inverse

    def _term_figures(self, found: _Found, written: list[tuple[str, float]]) -> np.ndarray:
        """[n, len(TERM_FIGURES)] in the order of TERM_FIGURES, each about -1 to 1."""
        index, count = self.index, len(found.terms)
        log_documents = np.log(index.documents + 1)
        frequency = self.frequency[found.terms]
        present = found.counts > 0
        columns = [
            index.idf[found.terms] / log_documents,
            np.log1p(frequency) / log_documents,
            1.0 - np.arange(count) / self.settings.candidates,
            found.mining / max(float(found.mining[0]), 1e-9),
            present.mean(axis=0),
            found.shares @ present,
            np.log1p(found.shares @ found.counts),
            present[0],
            [opening for _, opening in written],
            present.sum(axis=0) / frequency,
            *self._association(found),
            *self._effects(found),
            [min(len(surface) / 10.0, 2.0) for surface, _ in written],
            [any(letter.isdigit() for letter in surface) for surface, _ in written],
        ]
        return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)

    def _association(self, found: _Found) -> list[np.ndarray]:
        """Four figures [n] on how much more often than by chance a term meets the query's."""
        docs, _, starts = self._joined(found.terms)
        joint = np.zeros((len(found.terms), len(found.known)))
        here = np.zeros(self.index.documents, bool)
        for column, term in enumerate(found.known):
            own, _ = self.index.postings(self.index.terms[term])
            here[own] = True
            joint[:, column] = np.add.reduceat(here[docs], starts, dtype=np.int64)
            here[own] = False
        frequency, own = self.frequency[found.terms], self.frequency[found.known]
        pmi, npmi = association(joint, frequency, own, self.index.documents)
        log_documents = np.log(self.index.documents + 1)
        return [
            np.maximum(pmi.max(axis=1) / log_documents, -1.0),
            npmi.max(axis=1),
            npmi.mean(axis=1),
            npmi[:, int(np.argmin(own))],
        ]

    def _effects(self, found: _Found) -> list[np.ndarray]:
        """Six figures [n] on what adding each term would do to the ranking."""
        docs, impacts, starts = self._joined(found.terms)
        top = max(float(found.scores[found.feedback[0]]), 1e-6)
        after = found.scores[docs] + np.float32(self.settings.weight) * impacts
        slot = np.full(self.index.documents, -1)
        slot[found.feedback] = np.arange(len(found.feedback))
        inside = slot[docs]
        row = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(docs))))
        lifts = np.zeros((len(starts), len(found.feedback)))
        lifts[row[inside >= 0], inside[inside >= 0]] = impacts[inside >= 0] / top
        first = top * (1.0 + self.settings.weight * lifts[:, 0])
        last = float(found.scores[found.feedback[-1]])
        newcomers = np.add.reduceat((inside < 0) & (after > last), starts, dtype=np.int64)
        reach = np.maximum.reduceat(np.where(inside == 0, 0.0, after), starts)
        second = float(found.scores[found.feedback[1]]) if len(found.feedback) > 1 else 0.0
        return [
            np.add.reduceat(found.scores[docs], starts) / self.frequency[found.terms] / top,
            np.minimum(lifts[:, 0], 2.0),
            np.minimum(lifts @ found.shares, 2.0),
            np.minimum(lifts.std(axis=1), 2.0),
            np.minimum(newcomers / len(found.feedback), 2.0),
            np.clip(np.maximum(reach, second) / first - 1.0, -1.0, 1.0),
        ]

    def _joined(self, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Postings of terms one after another: documents, impacts, and where each begins [n]."""
        parts = [self.index.postings(self.index.terms[term]) for term in terms]
        starts = np.concatenate([[0], np.cumsum([len(docs) for docs, _ in parts])[:-1]])
        docs, impacts = (np.concatenate(column) for column in zip(*parts, strict=True))
        return docs, impacts, starts.astype(np.int64)

    def _query_figures(self, found: _Found, weights: dict[str, float]) -> np.ndarray:
        """[len(QUERY_FIGURES)] in the order of QUERY_FIGURES."""
        scores = found.scores[found.feedback]
        top = max(float(scores[0]), 1e-6)
        idf = self.index.idf[found.known] / np.log(self.index.documents + 1)
        entropy = -float(np.sum(found.shares * np.log(found.shares + 1e-12)))
        figures = [
            sum(weights.values()) / 10.0,
            1.0 - len(found.known) / len(weights),
            np.log1p(top),
            (top - scores[min(1, len(scores) - 1)]) / top,
            (top - scores[-1]) / top,
            entropy / np.log(max(self.settings.feedback_documents, 2)),
            idf.sum() / 5.0,
            idf.max(),
            idf.mean(),
            len(found.terms) / self.settings.candidates,
            np.log1p(np.count_nonzero(found.scores)) / np.log(self.index.documents + 1),
        ]
        return np.array(figures, np.float32)

    def _surfaces(self, names: list[str], feedback: np.ndarray) -> list[tuple[str, float]]:
        """Each term as it is most often written, and the share of its documents that open with it.

        Of two that are equally frequent the one met first is taken.
        """
        counts = {name: collections.Counter() for name in names}
        holders, openings = collections.Counter(), collections.Counter()
        for doc in feedback:
            for term, (written, first) in self._written(int(doc)).items():
                if term in counts:
                    counts[term].update(written)
                    holders[term] += 1
                    openings[term] += first < self.settings.opening_tokens
        return [
            (counts[name].most_common(1)[0][0], openings[name] / holders[name]) for name in names
        ]

    def _count_written(self, doc: int) -> dict[str, tuple[dict[str, int], int]]:
        """Of one document: term -> how often it is written in which way, and its first place."""
        result: dict[str, tuple[dict[str, int], int]] = {}
        for place, (term, word) in enumerate(self.index.tokenizer.surface(self.texts[doc])):
            written, _ = result.setdefault(term, ({}, place))
            written[word] = written.get(word, 0) + 1
        return result


class _Found(NamedTuple):
    """What the figures are computed from: `n` candidates, `k` feedback documents, `q` own terms."""

    terms: np.ndarray  # [n] ids
    counts: np.ndarray  # [k, n] occurrences in the feedback documents
    mining: np.ndarray  # [n]
    known: np.ndarray  # [q] ids
    scores: np.ndarray  # [documents]
    feedback: np.ndarray  # [k]
    shares: np.ndarray  # [k]


def feedback_counts(index: BM25Index, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which terms [u] occur in some documents, rising ids, and how often: [k, u]."""
    parts = [index.document_terms(int(doc)) for doc in documents]
    if not parts:
        return np.zeros(0, np.int64), np.zeros((0, 0))
    ids = np.concatenate([ids for ids, _ in parts])
    terms, place = np.unique(ids, return_inverse=True)
    counts = np.zeros((len(parts), len(terms)))
    row = np.repeat(np.arange(len(parts)), [len(ids) for ids, _ in parts])
    counts[row, place] = np.concatenate([count for _, count in parts])
    return terms, counts


def association(
    joint: np.ndarray, first: np.ndarray, second: np.ndarray, documents: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pointwise mutual information of terms over documents, plain and normalised.

    `pmi = log(p(a, b) / (p(a) p(b)))` and `npmi = pmi / -log p(a, b)`. Terms that never meet get
    npmi -1 and the pmi of half a meeting; terms that always meet in all documents get 0.

    Args:
        joint: [n, q] documents with both terms.
        first: [n] documents with the one.
        second: [q] documents with the other.
        documents: Number of documents.

    Returns:
        pmi: [n, q] in nats.
        npmi: [n, q] from -1 to 1.

    Source: Church & Hanks 1990; Bouma 2009, "Normalized (Pointwise) Mutual Information".
    """
    both = np.maximum(joint, 0.5) / documents
    expected = (first[:, np.newaxis] / documents) * (second / documents)
    pmi = np.log(both / expected)
    surprise = -np.log(both)
    npmi = np.where(surprise > 1e-9, pmi / np.maximum(surprise, 1e-9), 0.0)
    return pmi, np.where(joint > 0, np.clip(npmi, -1.0, 1.0), -1.0)


def _best(scores: np.ndarray, top: int) -> np.ndarray:
    """Documents [k] with the largest scores above 0, best first, of equals the smaller index."""
    docs = np.flatnonzero(scores > 0)
    if len(docs) > top:
        least = np.partition(scores[docs], len(docs) - top)[len(docs) - top]
        docs = docs[scores[docs] >= least]
    return docs[np.argsort(-scores[docs], kind="stable")[:top]]
