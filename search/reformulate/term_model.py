"""A supervised baseline: predict the gain of each term alone, and add the best at one weight.

It sees the features that the agent sees and learns from the same judgments.

Source: Cao et al. 2008, "Selecting Good Expansion Terms for Pseudo-Relevance Feedback", with
boosted trees for their support vector machine, and gains for their labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.ranking import best_places
from kytolly.search.reformulate.baselines import (
    evaluate,
    metric_values,
    query_scores,
    term_columns,
)
from kytolly.search.reformulate.query import Query

THRESHOLDS = (0.0, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05)


class Regressor(Protocol):
    """A model that predicts gains."""

    def predict(self, features: np.ndarray, /) -> np.ndarray:
        """[rows] from [rows, features]."""
        ...


class TermExamples(NamedTuple):
    """Terms that might be added, and the gain of each.

    Attributes:
        features: [rows, F] features of a term and of its query.
        gain: [rows] change of the metric.
    """

    features: np.ndarray
    gain: np.ndarray


@dataclasses.dataclass(frozen=True)
class TermModel:
    """Adds the terms with the largest predicted gains above a threshold.

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
        predicted = self.regressor.predict(term_features(query))
        best = best_places(predicted, self.terms, np.flatnonzero(predicted > self.threshold))
        added = dict.fromkeys((query.candidates[place] for place in best), self.weight)
        return {**query.weights, **added}


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
    examples = term_examples(train, index, metric, weight)
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
    queries: Sequence[Query], index: BM25Index, metric: str = "ndcg@10", weight: float = 0.3
) -> TermExamples:
    """A row for each candidate: what it alone would change.

    Args:
        queries: Queries of the train split with their judgments.
        index: The index to search.
        metric: The gain is the change of this metric.
        weight: Weight of an added term.
    """
    features, gains = [], []
    for query in queries:
        columns = np.float32(weight) * term_columns(index, query)[: len(query.candidates)]
        scores = query_scores(index, query, query.weights)
        now = metric_values(metric, query, scores[np.newaxis])[0]
        features.append(term_features(query))
        gains.append(metric_values(metric, query, scores + columns) - now)
    return TermExamples(np.concatenate(features), np.concatenate(gains))


def term_features(query: Query) -> np.ndarray:
    """[n, F] features of each candidate: its own, and the query's."""
    count = len(query.candidates)
    state = np.broadcast_to(query.state_features, (count, len(query.state_features)))
    of_candidate = query.candidate_features[:count]
    return np.concatenate([of_candidate, state], axis=1).astype(np.float32)


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
