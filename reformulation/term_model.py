"""A supervised baseline: predict what each term would gain, add the best, stop when none would.

It sees the features that the agent sees and learns from the same judgements, without reinforcement:
what is left for reinforcement learning is what this model does not reach.

Source: Cao et al. 2008, "Selecting Good Expansion Terms for Pseudo-Relevance Feedback", with
boosted trees for their support vector machine, and gains for their labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np

from kytolly.reformulation.baselines import columns_of, evaluate, extended, query_scores, values
from kytolly.reformulation.table import Query
from kytolly.retrieval.bm25 import BM25Index

THRESHOLDS = (0.0, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05)


class Regressor(Protocol):
    """What predicts gains."""

    def predict(self, features: np.ndarray, /) -> np.ndarray:
        """[rows] from [rows, features]."""
        ...


class Examples(NamedTuple):
    """Terms that might have been added, and what came of it.

    Attributes:
        features: [rows, F] of a term and the state of its query.
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
        weight: Of an added term.
        threshold: Predicted gains up to this are not worth a term.
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
        return extended(query, [query.candidates[place] for place in chosen], self.weight)


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
    examples = gain_examples(train, index, metric, weight, states=3, seed=seed)
    model = TermModel(boosted_trees(examples, seed), terms, weight)
    return with_threshold(model, dev, index, metric)


def with_threshold(
    model: TermModel, dev: Sequence[Query], index: BM25Index, metric: str = "ndcg@10"
) -> TermModel:
    """The model with the threshold that is best for the dev queries; of equals the highest."""
    choices = [dataclasses.replace(model, threshold=value) for value in reversed(THRESHOLDS)]
    scores = [evaluate(choice, dev, index, metric).mean() for choice in choices]
    return choices[int(np.argmax(scores))]


def gain_examples(
    queries: Sequence[Query],
    index: BM25Index,
    metric: str = "ndcg@10",
    weight: float = 0.3,
    states: int = 3,
    seed: int = 0,
) -> Examples:
    """One row per candidate in each of some states: the typed query, and after random additions.

    Half of the additions are the best term, so that states after good choices are seen, too.

    Args:
        queries: With judgements, of the train split.
        index: To search.
        metric: Whose change is the gain.
        weight: Of an added term.
        states: Of each query.
        seed: Of the additions.
    """
    features, gains = [], []
    for query in queries:
        generator = np.random.default_rng((seed, query.number + 1))
        columns = columns_of(index, query, weight)
        scores = query_scores(index, query, query.weights)
        chosen: list[int] = []
        for _ in range(min(states, len(columns))):
            now = values(query, scores[np.newaxis], metric)[0]
            gain = values(query, scores + columns, metric) - now
            free = np.setdiff1d(np.arange(len(columns)), chosen)
            features.append(term_features(query, chosen, weight)[free])
            gains.append(gain[free])
            picked = free[np.argmax(gain[free])]
            if generator.random() < 0.5:
                picked = generator.choice(free)
            chosen.append(int(picked))
            scores = scores + columns[picked]
    return Examples(np.concatenate(features), np.concatenate(gains))


def term_features(query: Query, chosen: Sequence[int], weight: float) -> np.ndarray:
    """[n, F] of each candidate: its own, its cosine to the query so far, the query's, the step.

    Args:
        query: With `n` candidates.
        chosen: Places of those that were added.
        weight: Of an added term.
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


def boosted_trees(examples: Examples, seed: int = 0) -> Regressor:
    """Gradient-boosted regression trees on gains; slow and shallow, because gains are noisy.

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
