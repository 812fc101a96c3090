"""Fit the model of gains that comes with the package, and see how it does on unseen collections.

`python -m kytolly.search.scripts.fit_gain_model FOLDER... [--out FILE]` leaves each collection out
once: a network that learned from the others changes its queries (as `pretrained` does), and a
regression of relevance that learned from the others expects the gains. The table compares them with
the true gains in searches of all documents. What is saved learned relevance from all collections;
its calibration is that of the gains which were expected of collections that were left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.search.index.corpus import available_splits
from kytolly.search.reformulate.choice import UNTESTED, Choice
from kytolly.search.reformulate.gain_model import (
    DEPTH,
    GainModel,
    RankedDocuments,
    discounts,
    ranked_documents,
)
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.reformulator import (
    for_unknown_documents,
    query_plan,
    scaled_proposals,
)
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import make_table
from kytolly.search.scripts.pretrain_scorer import FUSIONS, MAX_QUERIES, fit

MOST = 400  # queries of a split
KEPT_HURT = 0.5  # share of the queries that are hurt which the margin leaves
STEPS = 40  # of the calibration, at most
MIN_STEP = 25  # queries of a step


class Change(NamedTuple):
    """A query, changed: its documents, which of them are relevant [d], and its true gain."""

    fusion: float
    ranked: RankedDocuments
    relevant: np.ndarray
    gain: float


def changes_of(
    context: SearchContext, queries: Sequence[Query], network: NumpyScorer
) -> list[Change]:
    """The queries as `pretrained` changes them, with each weight of the cosines."""
    context, changes = for_unknown_documents(context), []
    bare = [
        query._replace(
            lowerable=(), candidate_features=query.candidate_features[: len(query.candidates)]
        )
        for query in queries
    ]
    for fusion in FUSIONS:
        choice = Choice(fusion, UNTESTED)
        weights, expected = scaled_proposals(network, bare, context.rules, choice)
        for query, row, gain in zip(bare, weights, expected.tolist(), strict=True):
            plan = query_plan(query, row, gain, choice)
            text = context.collection.queries[query.number]
            ranked = ranked_documents(context, query, text, plan.weights, fusion)
            judged = query.relevant[query.relevant != query.excluded]
            relevant = np.isin(ranked.documents, judged)
            ideal = discounts(np.arange(min(len(judged), DEPTH))).sum()
            moved = relevant @ (ranked.discount_after - ranked.discount_before)
            changes.append(Change(fusion, ranked, relevant, float(moved / ideal)))
    return changes


def fit_relevance(parts: Sequence[Sequence[Change]]) -> GainModel:
    """A regression of relevance from the changes of several collections, each counting as much."""
    from sklearn.linear_model import LogisticRegression

    changes = [change for part in parts for change in part]
    features = np.concatenate([change.ranked.features for change in changes])
    relevant = np.concatenate([change.relevant for change in changes])
    share = [1.0 / len(part) for part in parts for _ in part]
    counts = [len(change.relevant) for change in changes]
    weight = np.repeat(share, counts)
    mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    regression = LogisticRegression(C=0.1, max_iter=200)
    regression.fit((features - mean) / scale, relevant, sample_weight=weight / weight.mean())
    line = np.array([-1.0, 1.0])
    return GainModel(
        mean.astype(np.float32),
        scale.astype(np.float32),
        np.array(regression.coef_, np.float32)[0],
        np.array(regression.intercept_, np.float32)[0],
        *(line, line, line, line),
        margins=np.zeros(2),
    )


def calibration(
    expected: np.ndarray, gain: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points [k] of a rising function from expected gains to true ones, means of many queries."""
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(expected, kind="stable")
    bins = np.array_split(order, max(2, min(STEPS, len(order) // MIN_STEP)))
    at = np.array([np.average(expected[rows], weights=weight[rows]) for rows in bins])
    mean = np.array([np.average(gain[rows], weights=weight[rows]) for rows in bins])
    total = np.array([weight[rows].sum() for rows in bins])
    return at, IsotonicRegression().fit_transform(at, mean, sample_weight=total)


def margin_of(expected: np.ndarray, gain: np.ndarray, weight: np.ndarray) -> float:
    """The least expected gain, not below 0, above which half as many queries are hurt."""
    hurt = weight * (gain < -1e-6)
    order = np.argsort(-expected, kind="stable")
    reached = np.cumsum(hurt[order]) <= KEPT_HURT * hurt.sum()
    return max(0.0, float(expected[order][reached][-1])) if reached.any() else 0.0


def fit_gains(parts: Mapping[str, Sequence[Change]]) -> GainModel:
    """The model of all collections; prints how it does on each when that one is left out."""
    expected = {}
    for name, part in parts.items():
        model = fit_relevance([other for left, other in parts.items() if left != name])
        expected[name] = np.array([model.uncalibrated_gain(change.ranked) for change in part])
    model, margins, points = fit_relevance(list(parts.values())), [], []
    for fusion in FUSIONS:
        rows = {n: np.array([c.fusion == fusion for c in part]) for n, part in parts.items()}
        raw = np.concatenate([expected[name][rows[name]] for name in parts])
        gain = np.concatenate([gains_of(part)[rows[name]] for name, part in parts.items()])
        weight = np.concatenate([np.full(row.sum(), 1.0 / row.sum()) for row in rows.values()])
        at, to = calibration(raw, gain, weight)
        calibrated = np.interp(raw, at, to)
        margins.append(margin_of(calibrated, gain, weight))
        points += [at, to]
        first = 0
        for name in parts:
            count = int(rows[name].sum())
            part = slice(first, first + count)
            print_row(name, fusion, calibrated[part], gain[part], margins[-1])
            first += count
    return GainModel(*model[:4], *points, margins=np.array(margins))


def gains_of(changes: Sequence[Change]) -> np.ndarray:
    """[n] true gains."""
    return np.array([change.gain for change in changes])


def print_row(
    name: str, fusion: float, expected: np.ndarray, gain: np.ndarray, margin: float
) -> None:
    """Print how well the gains of one collection are expected, and what a margin leaves."""
    used, hurt = expected > margin, gain < -1e-6
    correlation = float(np.corrcoef(expected, gain)[0, 1]) if np.ptp(expected) else 0.0
    print(
        f"{name:<12} {fusion:>4g} cosines {len(gain):>5} queries  correlation {correlation:+.2f}  "
        f"gain {gain.mean():+.4f} -> {np.mean(gain * used):+.4f}  hurt {hurt.mean():.1%} -> "
        f"{np.mean(hurt & used):.1%}  changed {used.mean():.0%}  margin {margin:.4f}",
        flush=True,
    )


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    tf.keras.utils.set_random_seed(0)
    contexts, queries, tables = {}, {}, {}
    for folder in args.folders:
        name, splits = Path(folder).name, available_splits(folder)
        options = ReformulationOptions(collection=folder)
        context = contexts[name] = SearchContext.load(options, splits)
        by_split = {
            split: [
                query
                for query in context.queries(split, MAX_QUERIES if split == "train" else MOST)
                if query.has_relevant
            ]
            for split in splits
        }
        tables[name] = make_table(
            by_split["train"], context.index, context.documents, context.rules
        )
        queries[name] = [query for part in by_split.values() for query in part[:MOST]]
    parts = {}
    for name, context in contexts.items():
        others = [table for left, table in tables.items() if left != name]
        network = NumpyScorer(fit(others, context.rules))
        parts[name] = changes_of(context, queries[name], network)
    model = fit_gains(parts)
    if args.out:
        model.save(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
