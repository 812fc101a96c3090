"""Whether what was chosen in pools of documents also helps in searches of all documents.

Training and the choice rank a pool of documents for each query. A document outside of the pool that
the changed query would find is missing there, so gains look larger than they are: the more so, the
larger the collection is, and the farther from the query its candidates come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kytolly.search.index.metric_names import cutoff
from kytolly.search.index.metrics import per_query
from kytolly.search.index.significance import CHANCE, best_row
from kytolly.search.reformulate.candidates import SkippedQuery, with_judgments
from kytolly.search.reformulate.choice import Choice, HeldOut
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.query import Query
from kytolly.search.reformulate.reformulator import query_plan, scaled_proposals, trec_run
from kytolly.search.reformulate.search import SearchContext

MAX_QUERIES = 1_000  # that are searched
SHARES = (1.0, 0.5, 0.25)  # of the scale that was chosen
DEPTH = 1_000  # documents of a ranking where the metric has no cutoff


class Sample(NamedTuple):
    """Queries of one split, and the network that proposes for each.

    Attributes:
        split: "train" or "dev".
        numbers: [Q] places in the collection.
        networks: Networks that did not learn from all of them.
        fold: [Q] the network of each query.
    """

    split: str
    numbers: np.ndarray
    networks: Sequence[NumpyScorer]
    fold: np.ndarray


class Confirmation(NamedTuple):
    """The limits of whole searches.

    Attributes:
        choice: The choice with its scale, a share of it, or 0.
        gain: Mean gain of the best share in the metric.
        chance: Probability that it gains as much where none of them is better than nothing.
        queries: Number of queries that were searched.
    """

    choice: Choice
    gain: float
    chance: float
    queries: int


def confirm_choice(
    context: SearchContext,
    choice: Choice,
    network: NumpyScorer,
    dev: np.ndarray | None,
    held_out: HeldOut | None,
    seed: int,
) -> Confirmation | None:
    """Search with a choice, and with shares of its scale, all documents.

    Args:
        context: The collection and how it is searched.
        choice: What pools allow.
        network: The network that it uses.
        dev: [Q] dev queries, as places in the collection; None: there are none.
        held_out: Train queries with networks that did not learn from them; None: there are none.
        seed: Of the draw of queries where there are many.

    Returns:
        None where the choice is to change nothing, or there are no queries.
    """
    samples, rng = [], np.random.default_rng(seed)
    if dev is not None:
        numbers = np.sort(rng.permutation(dev)[:MAX_QUERIES])
        samples.append(Sample("dev", numbers, [network], np.zeros(len(numbers), np.int64)))
    left = MAX_QUERIES - sum(len(one.numbers) for one in samples)
    if held_out is not None and left > 0:
        rows = np.sort(rng.permutation(len(held_out.fold))[:left])
        numbers = held_out.queries.table.number[rows]
        samples.append(Sample("train", numbers, held_out.networks, held_out.fold[rows]))
    if not samples or not choice.scale:
        return None
    gains = np.concatenate([whole_gains(context, one, choice) for one in samples], axis=1)
    best, chance = best_row(gains, CHANCE, seed)
    scale = 0.0 if best is None else choice.scale * SHARES[best]
    gain = float(gains.mean(axis=1).max())
    return Confirmation(choice._replace(scale=scale), gain, chance, gains.shape[1])


def whole_gains(context: SearchContext, sample: Sample, choice: Choice) -> np.ndarray:
    """[len(SHARES), Q] gains of the queries that have candidates."""
    found, skipped = [], list[SkippedQuery]()
    mined = context.mine(context.collection, sample.numbers.tolist(), skipped)
    mined = with_judgments(mined, context.collection, sample.split)
    fold = dict(zip(sample.numbers.tolist(), sample.fold.tolist(), strict=True))
    for number, network in enumerate(sample.networks):
        queries = [query for query in mined if fold[query.number] == number]
        if queries:
            found.append(_gains(context, sample.split, queries, network, choice))
    return np.concatenate(found, axis=1) if found else np.zeros((len(SHARES), 0))


def _gains(
    context: SearchContext,
    split: str,
    queries: Sequence[Query],
    network: NumpyScorer,
    choice: Choice,
) -> np.ndarray:
    collection, metric = context.collection, context.options.retrieval.metric
    weights = [[query.weights for query in queries]]
    for share in SHARES:
        used = choice._replace(scale=choice.scale * share)
        rows, expected = scaled_proposals(network, queries, context.rules, used)
        plans = zip(queries, rows, expected.tolist(), strict=True)
        weights.append([query_plan(query, row, gain, used).weights for query, row, gain in plans])
    numbers = [query.number for query in queries]
    depth = cutoff(metric) or DEPTH
    ids = [collection.query_ids[number] for number in numbers]
    grades = {one: collection.judgments[split][one] for one in ids}
    values = []
    for hits in context.rank_all(collection, numbers, weights, choice.fusion, depth):
        run = trec_run(collection, numbers, hits)
        found = per_query(grades, run, [metric])[metric]
        values.append([found[one] for one in ids])
    return np.array(values[1:]) - np.array(values[0])
