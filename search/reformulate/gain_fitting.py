"""Fitting a `GainModel`: to judged documents, and to queries that were held out.

Sources: those of `gain_model`; Stone 1974 (cross-fitting: what is expected of a query comes from a
model that learned without it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from kytolly.search.reformulate.gain_model import (
    DEPTH,
    REGRESSION,
    GainModel,
    RankedDocuments,
    discounts,
    ranked_documents,
)
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.search import SearchContext

DECAY = 10.0  # of the regression's weights, against a loss that is a sum over documents
KEPT_HURT = 0.5  # share of the queries that are hurt which a margin leaves
HURT = -1e-6  # gain below which a query is hurt; more is rounding
STEPS = 40  # of the calibration, at most
MIN_STEP = 25  # queries of a step


class Change(NamedTuple):
    """A query that was changed, and what came of it.

    Attributes:
        ranked: The first documents of both rankings, `d` in all.
        relevant: [d] bool.
        gain: The change of the metric.
    """

    ranked: RankedDocuments
    relevant: np.ndarray
    gain: float


class GainTest(NamedTuple):
    """How well gains are expected, and what a margin leaves.

    Attributes:
        queries: Their number.
        correlation: Of expected and true gains.
        margin: Expected gain above which a query is changed.
        gain, hurt: Mean gain, and share of queries that are hurt, where every query is changed.
        kept_gain, kept_hurt: The same where only those above the margin are.
        changed: Share of queries above the margin.
    """

    queries: int
    correlation: float
    margin: float
    gain: float
    hurt: float
    kept_gain: float
    kept_hurt: float
    changed: float

    def text(self) -> str:
        """A line for a reader."""
        return (
            f"correlation {self.correlation:+.2f} with true ones on {self.queries:,} queries; "
            f"gain {self.gain:+.4f} -> {self.kept_gain:+.4f}, hurt {self.hurt:.1%} -> "
            f"{self.kept_hurt:.1%} where {self.changed:.0%} are changed"
        )


def gain_test(expected: np.ndarray, gain: np.ndarray, margin: float) -> GainTest:
    """Compare expected with true gains [Q]."""
    used, hurt = expected > margin, gain < HURT
    related = np.ptp(expected) > 0.0 and np.ptp(gain) > 0.0
    return GainTest(
        queries=len(gain),
        correlation=float(np.corrcoef(expected, gain)[0, 1]) if related else 0.0,
        margin=margin,
        gain=float(gain.mean()),
        hurt=float(hurt.mean()),
        kept_gain=float(np.mean(gain * used)),
        kept_hurt=float(np.mean(hurt & used)),
        changed=float(used.mean()),
    )


def judged_change(
    context: SearchContext,
    query: Query,
    weights: dict[str, float],
    fusion: float,
    gain: float | None = None,
) -> Change:
    """What a search with other weights finds for a query whose judgments are known.

    Args:
        context: The collection.
        query: The query, with its judgments.
        weights: Term -> weight in the changed query.
        fusion: Weight of the cosines.
        gain: The change of the metric; None: that of nDCG@10.
    """
    text = context.collection.queries[query.number]
    ranked = ranked_documents(context, query, text, weights, fusion)
    judged = query.relevant[query.relevant != query.excluded]
    relevant = np.isin(ranked.documents, judged)
    if gain is None:
        ideal = discounts(np.arange(min(len(judged), DEPTH))).sum()
        gain = float(relevant @ (ranked.discount_after - ranked.discount_before) / ideal)
    return Change(ranked, relevant, gain)


def fit_relevance(parts: Sequence[Sequence[Change]]) -> GainModel:
    """A regression of relevance from the changes of several collections, each counting as much.

    Its gains are not calibrated, and its margins are 0.
    """
    changes = [change for part in parts for change in part]
    features = np.concatenate([change.ranked.features for change in changes]).astype(np.float64)
    relevant = np.concatenate([change.relevant for change in changes]).astype(np.float64)
    share = [1.0 / len(part) for part in parts for _ in part]
    weight = np.repeat(share, [len(change.relevant) for change in changes])
    mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    weights, bias = logistic_regression(
        (features - mean) / scale, relevant, weight / weight.mean(), DECAY
    )
    line = np.array([-1.0, 1.0])
    return GainModel(
        mean[np.newaxis],
        scale[np.newaxis],
        weights[np.newaxis],
        np.array([bias]),
        *(line,) * 4,
        margins=np.zeros(2),
    )


def ensemble(models: Sequence[GainModel]) -> GainModel:
    """The regressions of several models in one, whose gains are not calibrated."""
    regressions = {
        name: np.concatenate([getattr(model, name) for model in models]) for name in REGRESSION
    }
    return models[0]._replace(**regressions)


def logistic_regression(
    features: np.ndarray, labels: np.ndarray, weight: np.ndarray, decay: float
) -> tuple[np.ndarray, float]:
    """Weights [F] and bias that minimize the weighted log loss plus `decay / 2 * weights**2`.

    Args:
        features: [n, F].
        labels: [n] 0 or 1.
        weight: [n] of each row.
        decay: Of the weights; the bias is free.
    """

    def loss(params: np.ndarray) -> tuple[float, np.ndarray]:
        logits = features @ params[:-1] + params[-1]
        error = weight * (special.expit(logits) - labels)
        value = weight @ (np.logaddexp(0.0, logits) - labels * logits)
        value += 0.5 * decay * params[:-1] @ params[:-1]
        return value, np.append(error @ features + decay * params[:-1], error.sum())

    params = optimize.minimize(loss, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return params[:-1], float(params[-1])


def calibration(
    expected: np.ndarray, gain: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points [k] of a rising function from expected gains to true ones, means of many queries."""
    order = np.argsort(expected, kind="stable")
    bins = np.array_split(order, max(2, min(STEPS, len(order) // MIN_STEP)))
    at = np.array([np.average(expected[rows], weights=weight[rows]) for rows in bins])
    mean = np.array([np.average(gain[rows], weights=weight[rows]) for rows in bins])
    total = np.array([weight[rows].sum() for rows in bins])
    return at, optimize.isotonic_regression(mean, weights=total).x


def margin_of(expected: np.ndarray, gain: np.ndarray, weight: np.ndarray) -> float:
    """The least expected gain, not below 0, above which half as many queries are hurt."""
    hurt = weight * (gain < HURT)
    order = np.argsort(-expected, kind="stable")
    beyond = np.cumsum(hurt[order]) > KEPT_HURT * hurt.sum()
    return max(0.0, float(expected[order][beyond][0])) if beyond.any() else 0.0
