"""A query that is ready to be reformulated, and the rules for its candidates and its episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Query(NamedTuple):
    """One query, ready to be reformulated.

    Attributes:
        number: Place in the collection.
        weights: Terms of the query and their weights.
        candidates: [n] terms that may be added.
        candidate_features: [n + m, F] features of the candidates, then of `own`; at most `N` rows.
        state_features: [G] features of the query.
        vector: [d] embedding of the query, of length 1.
        relevant: Documents judged relevant; empty where there is no judgment.
        excluded: A document that is the query itself and must not be found; -1 for none.
        surfaces: [n + m] how each is spelled, to be shown.
        own: [m] terms of the query that may be lowered.
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
    own: tuple[str, ...] = ()

    @property
    def options(self) -> int:
        """`n + m`, the number of terms whose weight an agent decides on."""
        return len(self.candidates) + len(self.own)

    def changed_weights(self, changes: Mapping[int, float]) -> dict[str, float]:
        """Term -> weight after changes, the query's own terms first.

        Args:
            changes: Place in `candidates` -> weight of the term that is added; places after those,
                in `own` -> the share of its weight that a term of the query loses.
        """
        weights, count = dict(self.weights), len(self.candidates)
        for place, change in changes.items():
            if place < count:
                weights[self.candidates[place]] = change
            else:
                weights[self.own[place - count]] *= 1.0 - change
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
    """

    metric: str = "ndcg@10"
    max_terms: int = 20
    max_candidates: int = 72
    pool_documents: int = 512


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
    """

    feedback_documents: int = 10
    candidates: int = 60
    opening_tokens: int = 10
    weight: float = 0.3
    fusion: float = 1.0
    neighbors: int = 0
    query_terms: int = 12
    generated: int = 0
