"""Features of candidate terms and of their query, from the index alone.

Source: Cao et al. 2008, "Selecting Good Expansion Terms for Pseudo-Relevance Feedback".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kytolly.search.index.bm25 import BM25Index

TERM_FEATURES = (
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
    "is in the query",
    "is generated",
    "log-probability",
)
MIN_LOG_PROB = -10.0  # log-probability from which on the feature is 0
LENGTH_UNIT = 10.0  # weight of a query whose feature "query length" is 1
MANY_POSTINGS = 30_000  # from here on, to count in each part takes less time than to add up
QUERY_FEATURES = (
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


Postings = tuple[np.ndarray, np.ndarray, np.ndarray]  # of all candidates, as `postings_of` does


class MiningRules(NamedTuple):
    """The settings of the search for candidates.

    Attributes:
        feedback_documents: Number of best documents that terms are taken from.
        candidates: Most candidates of a query.
        opening_tokens: Tokens at the beginning of a document that count as its title.
        weight: Weight of an added term, for the features that say what adding it would do.
        fusion: Weight of the cosines in the search for the feedback documents.
        neighbors: Most candidates that are near the query in the space of embeddings.
        query_terms: Most terms of the query that may be lowered.
        generated: Most terms that a rewriter proposes for a query.
        max_document_share: A term that a larger share of the documents holds is no candidate.
    """

    feedback_documents: int = 10
    candidates: int = 60
    opening_tokens: int = 10
    weight: float = 0.3
    fusion: float = 1.0
    neighbors: int = 0
    query_terms: int = 12
    generated: int = 0
    max_document_share: float = 1.0


class Candidates(NamedTuple):
    """The inputs of the features: `n` candidates, `k` feedback documents, `q` query terms.

    Attributes:
        terms: [n] ids.
        counts: [k, n] occurrences in the feedback documents.
        mining: [n] mining scores.
        known: [q] ids of the query's terms that the index has.
        scores: [documents] fused scores of the query.
        feedback: [k] documents.
        shares: [k] their shares of the sum of their scores.
        mined: Number of candidates, the first ones, that are mined from the feedback documents.
        lowerable: Number of candidates, the last ones, that are terms of the query.
        generated: [n] log-probabilities of the terms that a rewriter proposes; NaN for others.
    """

    terms: np.ndarray
    counts: np.ndarray
    mining: np.ndarray
    known: np.ndarray
    scores: np.ndarray
    feedback: np.ndarray
    shares: np.ndarray
    mined: int
    lowerable: int
    generated: np.ndarray


class MiningFeatures:
    """Computes features of candidates and queries.

    Args:
        index: The documents.
        rules: Settings of mining.
    """

    def __init__(self, index: BM25Index, rules: MiningRules):
        self.index, self.rules = index, rules
        self.frequency = index.document_frequency

    def term_features(self, given: Candidates, spellings: list[tuple[str, float]]) -> np.ndarray:
        """[n, len(TERM_FEATURES)] in the order of TERM_FEATURES, each about -1 to 1.

        Args:
            given: The candidates.
            spellings: [n] the most frequent spelling of each candidate, and the share of its
                documents that open with it.
        """
        index, rank = self.index, np.arange(len(given.terms))
        log_documents = np.log(index.documents + 1)
        frequency = self.frequency[given.terms]
        present, postings = given.counts > 0, index.postings_of(given.terms)
        best = float(given.mining[0] if given.mined else given.mining.max())
        probable = np.clip(1.0 - given.generated / MIN_LOG_PROB, 0.0, 1.0)
        columns = [
            index.idf[given.terms] / log_documents,
            np.log1p(frequency) / log_documents,
            np.where(rank < given.mined, 1.0 - rank / self.rules.candidates, 0.0),
            given.mining / max(best, 1e-9),
            present.mean(axis=0),
            given.shares @ present,
            np.log1p(given.shares @ given.counts),
            present[0],
            [opening for _, opening in spellings],
            present.sum(axis=0) / frequency,
            *self._association(given, postings),
            *self._effects(given, postings),
            [min(len(surface) / 10.0, 2.0) for surface, _ in spellings],
            [any(letter.isdigit() for letter in surface) for surface, _ in spellings],
            rank >= len(rank) - given.lowerable,
            ~np.isnan(given.generated),
            np.nan_to_num(probable),  # 1 where the rewriter is sure, 0 where it is not asked
        ]
        return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)

    def _association(self, given: Candidates, postings: Postings) -> list[np.ndarray]:
        """Four features [n]: how much more often than by chance a term meets the query's terms."""
        docs, _, starts = postings
        joint = np.zeros((len(given.terms), len(given.known)))
        for first in range(0, len(given.known), 8):  # a bit for each term
            holds = np.zeros(self.index.documents, np.uint8)
            terms = given.known[first : first + 8]
            for bit, term in enumerate(terms):
                holders, _ = self.index.postings(self.index.terms[term])
                holds[holders.astype(np.intp)] |= np.uint8(1 << bit)
            held = holds.take(docs)
            for bit in range(len(terms)):
                joint[:, first + bit] = segment_counts(held & np.uint8(1 << bit) != 0, starts)
        frequency, known = self.frequency[given.terms], self.frequency[given.known]
        pmi, npmi = association(joint, frequency, known, self.index.documents)
        log_documents = np.log(self.index.documents + 1)
        return [
            np.maximum(pmi.max(axis=1) / log_documents, -1.0),
            npmi.max(axis=1),
            npmi.mean(axis=1),
            npmi[:, int(np.argmin(known))],
        ]

    def _effects(self, given: Candidates, postings: Postings) -> list[np.ndarray]:
        """Six features [n]: what adding each term would do to the ranking."""
        docs, impacts, starts = postings
        top = max(float(given.scores[given.feedback[0]]), 1e-6)
        before = given.scores.take(docs)
        after = before + np.float32(self.rules.weight) * impacts
        slot = np.full(self.index.documents, -1, np.min_scalar_type(-len(given.feedback)))
        slot[given.feedback] = np.arange(len(given.feedback))
        inside = slot.take(docs)
        hits = np.flatnonzero(inside >= 0)
        row = np.searchsorted(starts, hits, side="right") - 1
        lifts = np.zeros((len(starts), len(given.feedback)))
        lifts[row, inside[hits]] = impacts[hits] / top
        first = top * (1.0 + self.rules.weight * lifts[:, 0])
        last = float(given.scores[given.feedback[-1]])
        newcomers = segment_counts((inside < 0) & (after > last), starts)
        after[hits[inside[hits] == 0]] = 0.0
        reach = np.maximum.reduceat(after, starts)
        second = float(given.scores[given.feedback[1]]) if len(given.feedback) > 1 else 0.0
        return [
            np.add.reduceat(before, starts) / self.frequency[given.terms] / top,
            np.minimum(lifts[:, 0], 2.0),
            np.minimum(lifts @ given.shares, 2.0),
            np.minimum(lifts.std(axis=1), 2.0),
            np.minimum(newcomers / len(given.feedback), 2.0),
            np.clip(np.maximum(reach, second) / first - 1.0, -1.0, 1.0),
        ]

    def query_features(self, given: Candidates, weights: dict[str, float]) -> np.ndarray:
        """[len(QUERY_FEATURES)] in the order of QUERY_FEATURES."""
        scores = given.scores[given.feedback]
        top = max(float(scores[0]), 1e-6)
        idf = self.index.idf[given.known] / np.log(self.index.documents + 1)
        entropy = -float(np.sum(given.shares * np.log(given.shares + 1e-12)))
        features = [
            sum(weights.values()) / LENGTH_UNIT,
            1.0 - len(given.known) / len(weights),
            np.log1p(top),
            (top - scores[min(1, len(scores) - 1)]) / top,
            (top - scores[-1]) / top,
            entropy / np.log(max(self.rules.feedback_documents, 2)),
            idf.sum() / 5.0,
            idf.max(),
            idf.mean(),
            given.mined / self.rules.candidates,
            np.log1p(np.count_nonzero(given.scores != 0.0)) / np.log(self.index.documents + 1),
        ]
        return np.array(features, np.float32)


def segment_counts(flags: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """[n] how many of [P] booleans are true from each start [n] to the next one."""
    if len(flags) < MANY_POSTINGS:
        return np.add.reduceat(flags, starts, dtype=np.int64)
    ends = [*starts[1:].tolist(), len(flags)]
    pairs = zip(starts.tolist(), ends, strict=True)
    return np.array([np.count_nonzero(flags[start:end]) for start, end in pairs])


def association(
    joint: np.ndarray, first: np.ndarray, second: np.ndarray, documents: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pointwise mutual information of terms over documents, plain and normalized.

    `pmi = log(p(a, b) / (p(a) p(b)))` and `npmi = pmi / -log p(a, b)`. Terms that never meet get
    npmi -1 and the pmi of half a meeting. Terms that occur in all documents get 0.

    Args:
        joint: [n, q] documents with both terms.
        first: [n] documents with the first term.
        second: [q] documents with the second term.
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
