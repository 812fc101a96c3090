"""The network and the scale that a run uses: chosen in pools, confirmed in whole searches.

Training and the choice rank a pool of documents for each query. A document outside of the pool that
the changed query would find is missing there, so gains look larger than they are: the more so, the
larger the collection is, and the farther from the query its candidates come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kytolly.search.index.metrics import CHANCE, best_row, cutoff, per_query
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import (
    FEW_QUERIES,
    UNTESTED,
    Choice,
    HeldOut,
    Selection,
    select,
    select_fusion,
)
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.query import Query, with_judgments
from kytolly.search.reformulate.reformulator import Plan, query_plan, scaled_proposals, trec_run
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable, concatenation

MAX_QUERIES = 1_000  # of a split that are searched
SHARES = (1.0, 0.5, 0.25)  # of the scale that was chosen
DEPTH = 1_000  # documents of a ranking where the metric has no cutoff


Say = Callable[[str], None]


class Sample(NamedTuple):
    """Queries of one split that are searched, and the network that proposes for each.

    Attributes:
        split: "train" or "dev".
        queries: `Q` queries with candidates and judgments.
        networks: Networks that did not learn from all of them.
        fold: [Q] the network of each query.
        part: [Q] queries of one part are kept together wherever some are left out; None: it does
            not matter.
    """

    split: str
    queries: list[Query]
    networks: Sequence[NumpyScorer]
    fold: np.ndarray
    part: np.ndarray | None = None


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


def judged_fusion(
    context: SearchContext, train: QueryTable | None, dev: QueryTable | None
) -> float:
    """The weight of the cosines: what the options say, or what train and dev queries prefer."""
    tables = [table for table in (train, dev) if table is not None]
    if context.options.retrieval.fusion != "auto" or not tables:
        return context.usual_fusion
    judged = DeviceQueries(concatenation(tables), context.rules)
    return select_fusion(judged, context.usual_fusion, context.options.seed)


def make_choice(
    networks: Sequence[CandidateScorer],
    dev: DeviceQueries | None,
    held_out: Sequence[HeldOut | None],
    fusion: float,
    seed: int,
    say: Say,
) -> dict[str, Selection]:
    """The choices with BM25 alone ("plain") and with cosines beside it ("fused").

    Both use one network: that of searches with cosines, if anything helps there.
    """
    most = max((len(part.fold) for part in held_out if part is not None), default=0)
    if dev is None and not most:
        say(f"no dev queries: weights are used at {UNTESTED:g} of what the network proposes")
        return {
            kind: Selection(Choice(weight, UNTESTED), len(networks) - 1, 0, 1.0, 0.0, 1.0)
            for kind, weight in (("fused", fusion), ("plain", 0.0))
        }
    count = 0 if dev is None else dev.num_queries
    if count + most < FEW_QUERIES:
        say(
            f"only {count + most} held-out queries: what helps on them may be chance; expected at "
            f"least {FEW_QUERIES}"
        )
    scorers = [NumpyScorer(network) for network in networks]
    fused = plain = select(scorers, dev, fusion, held_out, seed)
    if fusion:
        free = fused.choice.scale == 0.0
        first = 0 if free else fused.network
        tried = slice(None) if free else slice(first, first + 1)
        plain = select(scorers[tried], dev, 0.0, held_out[tried], seed)
        plain = plain._replace(network=first + plain.network)
        fused = fused._replace(network=plain.network)
    for selection in dict.fromkeys((fused, plain)):
        choice = selection.choice
        base = f"BM25 + {choice.fusion:g} cosines" if choice.fusion else "BM25"
        if choice.scale:
            say(f"over {base}: {evidence_text(selection_summary(selection))}")
        else:
            say(f"over {base}: nothing learned helps on held-out queries: they stay as they are")
    return {"fused": fused, "plain": plain}


def dev_sample(
    context: SearchContext, network: NumpyScorer, dev: QueryTable | None
) -> Sample | None:
    """Up to `MAX_QUERIES` dev queries, drawn by the seed; None where there are none.

    Args:
        context: The collection and how it is searched.
        network: Proposes for them; it learned from none.
        dev: The dev queries.
    """
    if dev is None:
        return None
    drawn = np.random.default_rng(context.options.seed).permutation(dev.number)[:MAX_QUERIES]
    queries = mined_queries(context, "dev", np.sort(drawn))
    return Sample("dev", queries, [network], np.zeros(len(queries), np.int64))


def train_sample(
    context: SearchContext, held_out: HeldOut | None, parts: np.ndarray | None
) -> Sample | None:
    """Up to `MAX_QUERIES` train queries, drawn by the seed; None where none was held out.

    Args:
        context: The collection and how it is searched.
        held_out: The train queries, with networks that did not learn from them.
        parts: [Q] the part of each that is left out together; None: there are no parts.
    """
    if held_out is None:
        return None
    count = len(held_out.fold)
    rows = np.sort(np.random.default_rng(context.options.seed).permutation(count)[:MAX_QUERIES])
    queries = mined_queries(context, "train", held_out.queries.table.number[rows])
    part = None if parts is None else parts[rows]
    return Sample("train", queries, held_out.networks, held_out.fold[rows], part)


def mined_queries(context: SearchContext, split: str, numbers: np.ndarray) -> list[Query]:
    """Queries with candidates and judgments."""
    mined = context.mine(context.collection, numbers.tolist(), [])
    return with_judgments(mined, context.collection, split)


def confirm_selections(
    context: SearchContext, chosen: Mapping[str, Selection], samples: Sequence[Sample]
) -> dict[str, Selection]:
    """The selections, as far as searches of all documents confirm them."""
    confirmed = dict(chosen)
    for kind, selection in chosen.items():
        confirmation = confirm_choice(context, selection.choice, samples, context.options.seed)
        if confirmation is not None:
            confirmed[kind] = selection._replace(
                choice=confirmation.choice, whole_gain=confirmation.gain
            )
            scale = confirmation.choice.scale
            used = f"at a scale of {scale:g} used" if scale else "so queries stay as they are"
            context.phases.say(
                f"{confirmation.queries:,} searches of all documents with "
                f"{selection.choice.fusion:g} cosines: gain {confirmation.gain:+.4f} (chance "
                f"{confirmation.chance:.3f}), {used}"
            )
    return confirmed


def evidence_text(summary: Mapping[str, Any]) -> str:
    """What a choice gains, on which queries, and how sure that is, for a reader.

    Args:
        summary: `selection_summary` of the choice.
    """
    if not summary["scale"]:
        return "nothing is changed, because nothing that was learned helps on held-out queries"
    parts = [
        f"{one['gain']:+.4f} on {one['queries']:,} {one['split']} queries"
        for one in summary["evidence"]
    ]
    if not parts:
        return f"used at {summary['scale']:g} of the proposed weights, and tested on no query"
    if not summary["tried"]:
        return (
            f"nothing that was learned helps beyond chance: the network of the package gains "
            f"{' and '.join(parts)}, where its model of gains expects that a change pays"
        )
    where = "dev" if summary["evidence"][0]["split"] == "dev" else "train"
    return (
        f"gain {' and '.join(parts)} that its network did not learn from, at "
        f"{summary['scale']:g} of the proposed weights; where nothing helps, the best of "
        f"{summary['tried']} choices gains as much with probability {summary['chance']:.3f}; "
        f"choosing on four fifths of the {where} queries gains {summary['dev_gain']:+.4f} on the "
        "rest"
    )


def selection_summary(selection: Selection) -> dict[str, Any]:
    """A selection as `result.json` holds it."""
    summary = {**selection.choice._asdict(), **selection._asdict()}
    del summary["choice"], summary["network"]
    summary["evidence"] = [part._asdict() for part in selection.evidence]
    return summary


def confirm_choice(
    context: SearchContext, choice: Choice, samples: Sequence[Sample], seed: int
) -> Confirmation | None:
    """Search with a choice, and with shares of its scale, all documents.

    Args:
        context: The collection and how it is searched.
        choice: The choice that pools allow.
        samples: The queries.
        seed: Of the signs.

    Returns:
        None where the choice is to change nothing, or there are no queries.
    """
    if not samples or not choice.scale:
        return None
    gains = np.concatenate([whole_gains(context, sample, choice) for sample in samples], axis=1)
    best, chance = best_row(gains, CHANCE, seed)
    scale = 0.0 if best is None else choice.scale * SHARES[best]
    gain = float(gains.mean(axis=1).max())
    return Confirmation(choice._replace(scale=scale), gain, chance, gains.shape[1])


def whole_gains(context: SearchContext, sample: Sample, choice: Choice) -> np.ndarray:
    """[len(SHARES), Q] gains with shares of a choice's scale."""
    weights = [
        [
            plan.weights
            for plan in sample_plans(context, sample, choice._replace(scale=choice.scale * share))
        ]
        for share in SHARES
    ]
    return gains_of_weights(context, sample, weights, choice.fusion)


def sample_plans(context: SearchContext, sample: Sample, choice: Choice) -> list[Plan]:
    """[Q] plans, each from the network that did not learn from the query."""
    plans: dict[int, Plan] = {}
    for number, network in enumerate(sample.networks):
        rows = np.flatnonzero(sample.fold == number)
        if not len(rows):
            continue
        queries = [sample.queries[row] for row in rows]
        weights, expected = scaled_proposals(network, queries, context.rules, choice)
        for row, query, given, gain in zip(rows, queries, weights, expected.tolist(), strict=True):
            plans[int(row)] = query_plan(query, given, gain, choice)
    return [plans[row] for row in range(len(sample.queries))]


def gains_of_weights(
    context: SearchContext,
    sample: Sample,
    weights: Sequence[Sequence[Mapping[str, float]]],
    fusion: float,
) -> np.ndarray:
    """[W, Q] changes of the metric by weighted queries [W, Q], in searches of all documents."""
    collection, metric = context.collection, context.options.retrieval.metric
    numbers = [query.number for query in sample.queries]
    ids = [collection.query_ids[number] for number in numbers]
    grades = {query_id: collection.judgments[sample.split][query_id] for query_id in ids}
    typed, values = [query.weights for query in sample.queries], []
    depth = cutoff(metric) or DEPTH
    for hits in context.rank_all(collection, numbers, [typed, *weights], fusion, depth):
        run = trec_run(collection, numbers, hits)
        of_query = per_query(grades, run, [metric])[metric]
        values.append([of_query[query_id] for query_id in ids])
    return np.array(values[1:]) - np.array(values[0])
