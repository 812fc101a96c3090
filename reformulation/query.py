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
        similarity: [n, n] cosines between the candidates.
        query_similarity: [n] cosines of the candidates with the query.
        relevant: Documents judged relevant; empty where there is no judgment.
        excluded: A document that is the query itself and must not be found; -1 for none.
        surfaces: The most frequent spelling of each candidate, to be shown.
    """

    number: int
    weights: dict[str, float]
    candidates: list[str]
    candidate_features: np.ndarray
    state_features: np.ndarray
    similarity: np.ndarray
    query_similarity: np.ndarray
    relevant: np.ndarray
    excluded: int = -1
    surfaces: tuple[str, ...] = ()

    @property
    def has_relevant(self) -> bool:
        """Whether any document that may be found is relevant."""
        return any(doc != self.excluded for doc in self.relevant)


class EpisodeRules(NamedTuple):
    """What an episode may do.

    Attributes:
        metric: The reward is the change of this metric, such as "ndcg@10".
        max_terms: Most terms that an episode adds.
        max_candidates: Most candidates of a query, `N`.
        weight: Weight of an added term; a term of the query has 1.
    """

    metric: str = "ndcg@10"
    max_terms: int = 5
    max_candidates: int = 50
    weight: float = 0.3


class MiningRules(NamedTuple):
    """How candidates are mined.

    Attributes:
        feedback_documents: Number of best documents that terms are taken from.
        candidates: Most candidates of a query.
        opening_tokens: Tokens at the beginning of a document that count as its title.
        weight: Weight of an added term, for the features that say what adding it would do.
    """

    feedback_documents: int = 10
    candidates: int = 50
    opening_tokens: int = 10
    weight: float = 0.3
