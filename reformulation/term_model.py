"""A supervised baseline: predict the gain of each term and add the best until none would gain.

It sees the features that the agent sees and learns from the same judgments, without reinforcement
learning. What the agent gains beyond it is due to reinforcement learning.

Source: Cao et al. 2008, "Selecting Good Expansion Terms for Pseudo-Relevance Feedback", with
boosted trees for their support vector machine, and gains for their labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from kytolly.reformulation.baselines import evaluate
from kytolly.reformulation.query import Query
from kytolly.reformulation.scoring import (
    added_scores,
    expanded_weights,
    metric_values,
    query_scores,
)
from kytolly.retrieval.bm25 import BM25Index

THRESHOLDS = (0.0, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05)


class Regressor(Protocol):
    """A model that predicts gains."""

    def predict(self, features: np.ndarray, /) -> np.ndarray:
        """[rows] from [rows, features]."""
        ...


class TermExamples(NamedTuple):
    """Terms that might be added, and the gain of each.

    Attributes:
        features: [rows, F] features of a term and of the state of its query.
        gain: [rows] change of the metric.
    """

    features: np.ndarray
    gain: np.ndarray


@dataclasses.dataclass(frozen=True)
class TermModel:
    """Adds the term with the largest predicted gain, while that is above a threshold.

    Args:
        regressor: Predicts gains from `term_features`.
        terms: Most terms added.
        weight: Weight of an added term.
        threshold: A term is added if its predicted gain is above this.
    """

    regressor: Regressor
    terms: int = 5
    weight: float = 0.3
    threshold: float = 0.0

    def __call__(self, query: Query) -> dict[str, float]:
        """Term -> weight."""
        chosen: list[int] = []
        for _ in range(min(self.terms, len(query.candidates))):
            predicted = self.regressor.predict(term_features(query, chosen, self.weight))
            predicted = np.where(np.isin(np.arange(len(predicted)), chosen), -np.inf, predicted)
            best = int(np.argmax(predicted))
            if predicted[best] <= self.threshold:
                break
            chosen.append(best)
        return expanded_weights(query, [query.candidates[place] for place in chosen], self.weight)


def fit_term_model(
    train: Sequence[Query],
    dev: Sequence[Query],
    index: BM25Index,
    metric: str = "ndcg@10",
    terms: int = 5,
    weight: float = 0.3,
    seed: int = 0,
) -> TermModel:
    """A model of the gains in the train queries; its threshold is the best for the dev queries."""
    examples = term_examples(train, index, metric, weight, states=3, seed=seed)
    model = TermModel(boosted_trees(examples, seed), terms, weight)
    return with_threshold(model, dev, index, metric)


def with_threshold(
    model: TermModel, dev: Sequence[Query], index: BM25Index, metric: str = "ndcg@10"
) -> TermModel:
    """The model with the threshold that is best for the dev queries; of equal ones the highest."""
    choices = [dataclasses.replace(model, threshold=value) for value in reversed(THRESHOLDS)]
    scores = [evaluate(choice, dev, index, metric).mean() for choice in choices]
    return choices[int(np.argmax(scores))]


def term_examples(
    queries: Sequence[Query],
    index: BM25Index,
    metric: str = "ndcg@10",
    weight: float = 0.3,
    states: int = 3,
    seed: int = 0,
) -> TermExamples:
    """A row for each candidate in several states: the typed query, and after random additions.

    Half of the additions are the best term, so that there are states after good choices, too.

    Args:
        queries: Queries of the train split with their judgments.
        index: The index to search.
        metric: The gain is the change of this metric.
        weight: Weight of an added term.
        states: States of each query.
        seed: Seed of the additions.
    """
    features, gains = [], []
    for query in queries:
        generator = np.random.default_rng((seed, query.number + 1))
        columns = added_scores(index, query, weight)
        scores = query_scores(index, query, query.weights)
        chosen: list[int] = []
        for _ in range(min(states, len(columns))):
            now = metric_values(metric, query, scores[np.newaxis])[0]
            gain = metric_values(metric, query, scores + columns) - now
            free = np.setdiff1d(np.arange(len(columns)), chosen)
            features.append(term_features(query, chosen, weight)[free])
            gains.append(gain[free])
            picked = free[np.argmax(gain[free])]
            if generator.random() < 0.5:
                picked = generator.choice(free)
            chosen.append(int(picked))
            scores = scores + columns[picked]
    return TermExamples(np.concatenate(features), np.concatenate(gains))


def term_features(query: Query, chosen: Sequence[int], weight: float) -> np.ndarray:
    """[n, F] features of each candidate: its own, its cosine to the query so far, the query's.

    Args:
        query: A query with `n` candidates.
        chosen: Places of the candidates that were added.
        weight: Weight of an added term.
    """
    count = len(query.candidates)
    added = query.similarity[list(chosen)].reshape(-1, count)
    now = query.query_similarity + weight * added.sum(axis=0)
    own = added[:, list(chosen)].sum()  # squared length of the sum of the added terms
    meeting = query.query_similarity[list(chosen)].sum()
    norm = np.sqrt(max(1.0 + 2.0 * weight * meeting + weight**2 * own, 1e-6))
    nearest = added.max(axis=0) if len(chosen) else np.zeros(count)
    state = np.broadcast_to(query.state_features, (count, len(query.state_features)))
    step = np.full(count, len(chosen))
    columns = [query.candidate_features, np.stack([now / norm, nearest, step], axis=1), state]
    return np.concatenate(columns, axis=1).astype(np.float32)


def boosted_trees(examples: TermExamples, seed: int = 0) -> Regressor:
    """Gradient-boosted regression trees that predict gains.

    The learning rate is low and the trees are shallow, because gains are noisy.

    Raises:
        ModuleNotFoundError: LightGBM is not installed.
    """
    try:
        import lightgbm
    except (ImportError, OSError) as error:  # OSError: it lacks the system's libgomp
        raise ModuleNotFoundError(
            f"LightGBM cannot be loaded ({error}), and the supervised baseline needs it: "
            "pip install 'kytolly[benchmark]', or leave this baseline out."
        ) from None
    settings = {
        "objective": "regression",
        "learning_rate": 0.03,
        "num_leaves": 31,
        "min_data_in_leaf": 100,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "lambda_l2": 10.0,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(examples.features, examples.gain)
    return cast(Regressor, lightgbm.train(settings, data, num_boost_round=400))
