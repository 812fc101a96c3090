"""Fit the model of gains that comes with the package, and see how it does on unseen collections.

`python -m kytolly.search.scripts.fit_gain_model FOLDER... [--out FILE]` leaves each collection out
once: a network that learned from the others changes its queries (as `pretrained` does), and
regressions of relevance, one for each of the others, expect the gains. The table compares them with
the true gains in searches of all documents. What is saved has the regressions of all collections;
its calibration is that of the gains which were expected of collections that were left out. A second
line for each says what its own queries could teach a regression: where that is little, more
judgments would not help, and the features are the limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from scipy.stats import rankdata

from kytolly.search.index.corpus import available_splits
from kytolly.search.reformulate.choice import PRETRAINED_SCALE, Choice
from kytolly.search.reformulate.gain_fitting import (
    Change,
    calibration,
    ensemble,
    fit_relevance,
    gain_test,
    judged_change,
    margin_of,
)
from kytolly.search.reformulate.gain_model import GainModel
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.options import ReformulationOptions, RetrievalOptions
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.reformulator import (
    for_unknown_documents,
    query_plan,
    scaled_proposals,
)
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import make_table
from kytolly.search.scripts.pretrain_scorer import FUSIONS, MAX_QUERIES, fit
from kytolly.search.text.language import AUTO

LEARNING = ("train", "dev")  # splits; no judgment of a test query is looked at
MOST = 400  # queries of a split
PARTS = 5  # of a collection's queries; a regression learns from all but one

Changes = dict[float, list[Change]]  # weight of the cosines -> the changed queries


def changes_of(context: SearchContext, queries: Sequence[Query], network: NumpyScorer) -> Changes:
    """The queries as `pretrained` changes them."""
    context, changes = for_unknown_documents(context), Changes()
    bare = [
        query._replace(
            lowerable=(), candidate_features=query.candidate_features[: len(query.candidates)]
        )
        for query in queries
    ]
    for fusion in FUSIONS:
        choice = Choice(fusion, PRETRAINED_SCALE)
        weights, expected = scaled_proposals(network, bare, context.rules, choice)
        rows = zip(bare, weights, expected.tolist(), strict=True)
        plans = [query_plan(query, row, gain, choice) for query, row, gain in rows]
        changes[fusion] = [
            judged_change(context, query, plan.weights, fusion)
            for query, plan in zip(bare, plans, strict=True)
        ]
    return changes


def own_limit(changes: Sequence[Change]) -> str:
    """How well a regression would do that learned from other queries of the same collection."""
    order = np.random.default_rng(0).permutation(len(changes)).tolist()
    mixed = [changes[at] for at in order]
    expected, gain, scores, relevant = [], [], [], []
    for left in range(PARTS):
        others = [change for at, change in enumerate(mixed) if at % PARTS != left]
        model = fit_relevance([others])
        for change in mixed[left::PARTS]:
            expected.append(model.uncalibrated_gain(change.ranked))
            gain.append(change.gain)
            if change.gain:
                features = (change.ranked.features - model.mean[0]) / model.scale[0]
                scores.append(features @ model.weights[0] + model.bias[0])
                relevant.append(change.relevant)
    if not scores:
        return "of its own other queries: no change matters"
    matter = np.count_nonzero(gain) / len(gain)
    told_apart = separation(np.concatenate(scores), np.concatenate(relevant))
    return (
        f"of its own other queries: correlation {np.corrcoef(expected, gain)[0, 1]:+.2f}; where a "
        f"change matters ({matter:.0%}), relevant documents come before others with probability "
        f"{told_apart:.2f}"
    )


def separation(scores: np.ndarray, relevant: np.ndarray) -> float:
    """The probability that a relevant one of [N] documents has a higher score than another one."""
    ranks, count = rankdata(scores), int(relevant.sum())
    pairs = count * (len(scores) - count)
    return float((ranks[relevant].sum() - count * (count + 1) / 2) / pairs)


def fit_gains(collections: Mapping[str, Changes]) -> GainModel:
    """The model of all collections; prints how it does on each when that one is left out."""
    regressions = {
        name: fit_relevance([[change for of_fusion in changes.values() for change in of_fusion]])
        for name, changes in collections.items()
    }
    models = {
        name: ensemble([other for left, other in regressions.items() if left != name])
        for name in regressions
    }
    margins, points = [], []
    for fusion in FUSIONS:
        changes = {name: of_fusion[fusion] for name, of_fusion in collections.items()}
        raw = [
            models[name].uncalibrated_gain(change.ranked)
            for name, part in changes.items()
            for change in part
        ]
        gain = np.array([change.gain for part in changes.values() for change in part])
        counts = np.array([len(part) for part in changes.values()])
        weight = np.repeat(1.0 / counts, counts)
        at, to = calibration(np.array(raw), gain, weight)
        expected = np.interp(raw, at, to)
        margins.append(margin_of(expected, gain, weight))
        points += [at, to]
        ends = np.cumsum(counts)
        for name, last, count in zip(changes, ends, counts, strict=True):
            part = slice(last - count, last)
            tested = gain_test(expected[part], gain[part], margins[-1])
            print(f"{name:<12} {fusion:g} cosines: {tested.text()}", flush=True)
            print(f"{'':<12} {own_limit(changes[name])}", flush=True)
        print(f"margin {margins[-1]:.4f}", flush=True)
    model = ensemble(list(regressions.values()))
    return GainModel(*model[:4], *points, margins=np.array(margins))


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    tf.keras.utils.set_random_seed(0)
    contexts, queries, tables = {}, {}, {}
    for folder in args.folders:
        name = Path(folder).name
        splits = [split for split in LEARNING if split in available_splits(folder)]
        retrieval = RetrievalOptions(language=AUTO)
        options = ReformulationOptions(collection=folder, retrieval=retrieval)
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
