"""A query that is ready to be reformulated, and the rules for its candidates and its episodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Query(NamedTuple):
    """One query, ready to be reformulated.

    Attributes:
        number: Place in the collection.
        weights: Terms of the query and their weights.
        candidates: Up to `N` terms that may be added.
        candidate_features: [n, F] features of the candidates.
        state_features: [G] features of the query.
        vector: [d] embedding of the query, of length 1.
        relevant: Documents judged relevant; empty where there is no judgment.
        excluded: A document that is the query itself and must not be found; -1 for none.
        surfaces: The most frequent spelling of each candidate, to be shown.
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

    @property
    def has_relevant(self) -> bool:
        """Whether any document that may be found is relevant."""
        return any(doc != self.excluded for doc in self.relevant)


class SearchRules(NamedTuple):
    """What a reformulation may do, and what training sees of a search.

    Attributes:
        metric: The reward is the change of this metric, such as "ndcg@10".
        max_terms: Most terms that are added to a query.
        max_candidates: Most candidates of a query, `N`.
        pool_documents: Documents of each query that training ranks, `P`.
    """

    metric: str = "ndcg@10"
    max_terms: int = 20
    max_candidates: int = 60
    pool_documents: int = 512


class MiningRules(NamedTuple):
    """How candidates are mined.

    Attributes:
        feedback_documents: Number of best documents that terms are taken from.
        candidates: Most candidates of a query.
        opening_tokens: Tokens at the beginning of a document that count as its title.
        weight: Weight of an added term, for the features that say what adding it would do.
        fusion: Weight of the cosines in the search for the feedback documents.
    """

    feedback_documents: int = 10
    candidates: int = 60
    opening_tokens: int = 10
    weight: float = 0.3
    fusion: float = 1.0
