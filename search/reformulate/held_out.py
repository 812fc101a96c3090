"""Metrics of a run on the test queries, beside other systems and the ceiling of its candidates.

The judgments of the test queries are used here, not before. What has settings is tuned on dev
queries, and BM25 itself is among the settings.
"""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kytolly.search.index.metrics import METRICS, paired_bootstrap, per_query
from kytolly.search.index.trec import write_run
from kytolly.search.reformulate.baselines import (
    RM3,
    GreedyCeiling,
    Method,
    Rocchio,
    as_many_as_mined,
    mined_candidates,
    tune,
)
from kytolly.search.reformulate.choice import LOWEST, Choice, Choices
from kytolly.search.reformulate.gain_fitting import gain_test
from kytolly.search.reformulate.query import Query, SkippedQuery, with_judgments
from kytolly.search.reformulate.reformulator import Plan, Reformulator, trec_run
from kytolly.search.reformulate.report import PICTURE, bin_means, save_calibration
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.term_model import fit_term_model
from kytolly.search.reformulate.term_report import report_terms

RUN_DEPTH = 1_000  # documents of a query in a run file
UNCHANGED = 1e-6  # difference of a metric; less is rounding
MAX_LEARNED = 300  # queries that other systems learn from, and are tuned on
MAX_CEILING = 300  # test queries whose ceiling is searched for
# Both hold BM25 itself, first, so that tuning cannot lose to it.
RM3_GRID = {"original": (1.0, 0.9, 0.7, 0.5), "documents": (5, 10), "terms": (10, 30)}
ROCCHIO_GRID = {"beta": (0.0, 0.1, 0.3, 0.75), "documents": (5, 10), "terms": (10, 30)}
BM25, FUSED, AGENT, AGENT_FUSED, CEILING = "bm25", "fused", "agent", "agent_fused", "ceiling"
CEILING_MINED, CEILING_AS_MANY = "ceiling_mined", "ceiling_as_many"

Weights = Mapping[str, float]


class System(NamedTuple):
    """One way to search.

    Attributes:
        weights: [q] terms of queries, and their weights.
        fusion: Weight of the cosines.
        places: [q] places of these queries among the test queries; None: all of them.
    """

    weights: Sequence[Weights]
    fusion: float = 0.0
    places: np.ndarray | None = None


class Outcome(NamedTuple):
    """The ranking of a system for [q] queries.

    Attributes:
        values: Metric -> [q] values.
        orders: [q] hashes of rankings; equal ones are the same ranking.
        places: [q] places of these queries among the test queries.
        drifted: Number of best documents that hold no rare typed word (`drift`).
    """

    values: dict[str, np.ndarray]
    orders: np.ndarray
    places: np.ndarray
    drifted: int = 0


class TestQueries:
    """The test queries of a collection, with candidates and judgments.

    Args:
        context: The collection, and how it is searched.
        run_dir: Receives `test_SYSTEM.run`.
    """

    __test__ = False  # pytest would take it for a test

    def __init__(self, context: SearchContext, run_dir: Path):
        self.context, self.run_dir, self.say = context, run_dir, context.phases.say
        self.collection, self.metric = context.collection, context.options.retrieval.metric
        self.metrics = tuple(dict.fromkeys((self.metric, *METRICS)))
        self.numbers = self.collection.split("test")
        self.qrels = self.collection.judgments["test"]
        self.skipped: list[SkippedQuery] = []
        self.say(f"test: mining {len(self.numbers):,} queries")
        queries = context.mine(self.collection, self.numbers, self.skipped)
        self.mined = with_judgments(queries, self.collection, "test")

    def plans(self, reformulator: Reformulator) -> list[Plan]:
        """[Q] plans of all queries."""
        return reformulator.plans(self.collection, self.numbers, (self.mined, self.skipped))

    def typed_weights(self, numbers: Sequence[int] | None = None) -> list[Weights]:
        """[Q] weights of queries as they were typed; without their numbers, of all."""
        numbers = self.numbers if numbers is None else numbers
        return [self.context.index.query_weights(self.collection.queries[n]) for n in numbers]

    def feedback_weights(self, method: Method) -> list[Weights]:
        """[Q] weights of a method that needs no candidates."""
        nothing = np.zeros(0, np.float32)
        changed = []
        for number, weights in zip(self.numbers, self.typed_weights(), strict=True):
            itself = self.collection.own_document(number)
            excluded = -1 if itself is None else itself
            query = Query(number, dict(weights), [], nothing, nothing, nothing, nothing, excluded)
            changed.append(method(query))
        return changed

    def candidate_weights(self, method: Method, places: np.ndarray | None = None) -> list[Weights]:
        """[q] weights of a method that takes candidates; a query without any stays as it is."""
        weights, by_number = self.typed_weights(), {query.number: query for query in self.mined}
        chosen = range(len(weights)) if places is None else places.tolist()

        def weights_of(place: int) -> Weights:
            query = by_number.get(self.numbers[place])
            if query is None or not query.has_relevant:
                return weights[place]
            return method(query)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(weights_of, chosen))

    def search(self, name: str, system: System) -> Outcome:
        """Search, and write the run."""
        self.say(f"test: searching with {name}")
        places = np.arange(len(self.numbers)) if system.places is None else system.places
        numbers = [self.numbers[place] for place in places]
        hits = self.context.rank(self.collection, numbers, system.weights, system.fusion, RUN_DEPTH)
        run = trec_run(self.collection, numbers, hits)
        write_run(self.run_dir / f"test_{name}.run", run, name)
        qrels = {query: self.qrels[query] for query in run}
        values = per_query(qrels, run, self.metrics)
        return Outcome(
            {metric: np.array([values[metric][query] for query in run]) for metric in self.metrics},
            np.array([hash(tuple(hit.doc_id for hit in ranking)) for ranking in hits]),
            places,
            sum(map(self.context.drifted, self.typed_weights(numbers), hits)),
        )


def test_metrics(reformulator: Reformulator, run_dir: Path) -> dict[str, Any]:
    """Evaluate a run on the test queries, beside what it has to beat.

    Every query with judgments counts: one that cannot be reformulated keeps its ranking.

    Args:
        reformulator: The run's reformulator, for a collection with a test split.
        run_dir: Receives `test_SYSTEM.run` for each system, `calibration.png`, and the files of
            `report_terms`.

    Returns:
        For each system and metric the mean and the difference to BM25, and for the agent with
        cosines that to BM25 with cosines; the settings of what was tuned; the share of the
        ceiling's gain that the agent reaches; how well it expects its gains; which terms it
        changes; how many best documents hold no rare typed word; and how well the run's model
        expects the gains of its changes.
    """
    queries = TestQueries(reformulator.context, run_dir)
    plans = {
        AGENT: queries.plans(with_choice(reformulator, 0.0)),
        AGENT_FUSED: queries.plans(reformulator),
    }
    fusion = reformulator.fusion
    others, tuned = other_systems(queries)
    systems = {
        BM25: System(queries.typed_weights()),
        **others,
        AGENT: System([plan.weights for plan in plans[AGENT]]),
        FUSED: System(queries.typed_weights(), fusion),
        AGENT_FUSED: System([plan.weights for plan in plans[AGENT_FUSED]], fusion),
        **ceilings(queries),
    }
    outcomes = {name: queries.search(name, system) for name, system in systems.items()}
    unchanged = {
        name: sum(plan.reason is not None for plan in made) for name, made in plans.items()
    }
    changed = np.array([plan.reason is None for plan in plans[AGENT_FUSED]])
    everything = with_choice(reformulator, fusion, Choice(fusion, 1.0))
    proposed, used = queries.plans(everything), reformulator.choices.at(fusion).scale > 0.0
    queries.say("test: gain of each term alone")
    terms = report_terms(queries.context, plans[AGENT_FUSED] if used else proposed, fusion, run_dir)
    return {
        "metric": queries.metric,
        "fusion": fusion,
        "queries": len(queries.numbers),
        "unchanged": unchanged[AGENT_FUSED],
        "unchanged_plain": unchanged[AGENT],
        "without_relevant": sum(
            not any(grade > 0 for grade in grades.values()) for grades in queries.qrels.values()
        ),
        "tuned": tuned,
        "systems": {
            name: {metric: metric_row(name, outcomes, metric) for metric in queries.metrics}
            for name in outcomes
        },
        "share_of_ceiling": share_of_ceiling(outcomes, queries.metric),
        "calibration": calibrate(queries, proposed, fusion, outcomes[FUSED], changed),
        "terms": {**terms, "used": used},
        "drifted": {name: outcomes[name].drifted for name in (BM25, AGENT, FUSED, AGENT_FUSED)},
        "gains": {
            AGENT: tested_gains(queries, with_choice(reformulator, 0.0), outcomes[BM25]),
            AGENT_FUSED: tested_gains(queries, reformulator, outcomes[FUSED]),
        },
    }


def with_choice(
    reformulator: Reformulator, fusion: float, choice: Choice | None = None
) -> Reformulator:
    """The reformulator with another weight of the cosines, and perhaps another choice.

    With that, no gain is expected but by the network.
    """
    other = copy.copy(reformulator)
    other.fusion = fusion
    if choice is not None:
        other.choices, other.gains = Choices(fusion, {fusion: choice}), None
    return other


def tested_gains(
    queries: TestQueries, reformulator: Reformulator, base: Outcome
) -> dict[str, float] | None:
    """Compare the gains that the run's model expects of all changes with the true ones.

    None where it has no model, or changes nothing.
    """
    choice, gains = reformulator.choices.at(reformulator.fusion), reformulator.gains
    if gains is None or not choice.scale:
        return None
    everything = with_choice(reformulator, reformulator.fusion, choice._replace(margin=LOWEST))
    everything.gains = gains._replace(margins=np.full(2, LOWEST))
    plans = queries.plans(everything)
    system = System([plan.weights for plan in plans], reformulator.fusion)
    outcome = queries.search("everything", system)
    gain = outcome.values[queries.metric] - base.values[queries.metric]
    rows = np.flatnonzero([bool(plan.changes) for plan in plans])
    expected = np.array([plans[row].expected for row in rows])
    return gain_test(expected, gain[rows], gains.margin(reformulator.fusion))._asdict()


def other_systems(queries: TestQueries) -> tuple[dict[str, System], dict[str, Any]]:
    """The systems without an agent, tuned on dev queries, and the settings of each."""
    context, say, metric = queries.context, queries.say, queries.metric
    dev = judged_queries(context, "dev")
    if not dev:
        say("test: no dev queries to tune RM3 and Rocchio on: they are left out")
        return {}, {}
    systems, tuned = {}, {}
    for name, kind, grid in (("rm3", RM3, RM3_GRID), ("rocchio", Rocchio, ROCCHIO_GRID)):
        say(f"test: tuning {name} on {len(dev)} dev queries")
        best = tune(functools.partial(kind, context.index), grid, dev, context.index, metric)
        systems[name] = System(queries.feedback_weights(best.method))
        tuned[name] = best.settings
    train = judged_queries(context, "train")
    if train and importlib.util.find_spec("lightgbm"):
        say(f"test: boosted terms learn from {len(train)} train queries")
        try:
            model = fit_term_model(train, dev, context.index, metric, seed=context.options.seed)
        except ModuleNotFoundError as error:  # a library of the system is missing
            say(f"test: boosted terms are left out: {error}")
        else:
            systems["boosted"] = System(queries.candidate_weights(model))
    return systems, tuned


def ceilings(queries: TestQueries) -> dict[str, System]:
    """The greedy choice that knows the judgments, for test queries drawn by the seed, or all.

    With a rewriter there are two more: that of mined candidates alone, and that of as many of which
    the generated ones are a part.
    """
    count, places = len(queries.numbers), None
    if count > MAX_CEILING:
        rng = np.random.default_rng(queries.context.options.seed)
        places = np.sort(rng.permutation(count)[:MAX_CEILING])
    queries.say(f"test: ceiling of the candidates of {min(count, MAX_CEILING)} queries")
    greedy = GreedyCeiling(queries.context.index, metric=queries.metric)
    kinds: dict[str, Method] = {CEILING: greedy}
    if queries.context.generator is not None:
        kinds[CEILING_MINED] = lambda query: greedy(mined_candidates(query))
        kinds[CEILING_AS_MANY] = lambda query: greedy(as_many_as_mined(query))
    return {
        name: System(queries.candidate_weights(method, places), 0.0, places)
        for name, method in kinds.items()
    }


def judged_queries(context: SearchContext, split: str) -> list[Query]:
    """Queries of a split with candidates and a relevant document: a few, drawn by the seed."""
    if split not in context.collection.judgments:
        return []
    return [query for query in context.queries(split, MAX_LEARNED) if query.has_relevant]


def metric_row(name: str, outcomes: Mapping[str, Outcome], metric: str) -> dict[str, Any]:
    """A system's mean, and its differences to the systems that it begins with."""
    row: dict[str, Any] = {
        "mean": float(outcomes[name].values[metric].mean()),
        "queries": len(outcomes[name].places),
    }
    if name != BM25:
        row["over_bm25"] = difference(outcomes[name], outcomes[BM25], metric)
    if name == AGENT_FUSED:
        row["over_fused"] = difference(outcomes[name], outcomes[FUSED], metric)
    if name in (CEILING, CEILING_AS_MANY) and CEILING_MINED in outcomes:
        row["over_mined"] = ceiling_difference(outcomes[name], outcomes[CEILING_MINED], metric)
    return row


def difference(system: Outcome, base: Outcome, metric: str) -> dict[str, float]:
    """Mean difference of two systems with its 95% interval, and shares of queries.

    A query is changed where the two rankings differ, and helped or hurt where the metric does.
    `base` must have searched for all test queries.
    """
    value, before = system.values[metric], base.values[metric][system.places]
    mean, low, high = paired_bootstrap(list(value), list(before))
    return {
        "difference": mean,
        "low": low,
        "high": high,
        "changed": float(np.mean(system.orders != base.orders[system.places])),
        "helped": float(np.mean(value > before + UNCHANGED)),
        "hurt": float(np.mean(value < before - UNCHANGED)),
    }


def ceiling_difference(ceiling: Outcome, base: Outcome, metric: str) -> dict[str, float]:
    """`difference` of two ceilings, which are of the same queries."""
    places = np.arange(len(ceiling.places))
    return difference(ceiling._replace(places=places), base._replace(places=places), metric)


def share_of_ceiling(outcomes: Mapping[str, Outcome], metric: str) -> float | None:
    """The agent's gain over BM25, divided by the ceiling's on the same queries; None: no gain."""
    most = outcomes[CEILING]
    before = outcomes[BM25].values[metric][most.places]
    possible = float((most.values[metric] - before).mean())
    reached = float((outcomes[AGENT].values[metric][most.places] - before).mean())
    return reached / possible if possible > UNCHANGED else None


def calibrate(
    queries: TestQueries, plans: Sequence[Plan], fusion: float, base: Outcome, changed: np.ndarray
) -> dict[str, Any]:
    """Compare expected with true gains, and save the plot.

    The true gain is that of all weights as the network proposes them (`plans`), which is what it
    predicts, whatever the choice on dev made of them.
    """
    system = System([plan.weights for plan in plans], fusion)
    gain = queries.search("proposals", system).values[queries.metric] - base.values[queries.metric]
    proposed = np.array([plan.query is not None for plan in plans])
    if not proposed.any():
        return {}
    expected = np.array([plan.expected for plan in plans])
    bins = bin_means(expected[proposed], gain[proposed], changed[proposed])
    save_calibration(queries.run_dir / PICTURE, bins, queries.metric)
    return bins._asdict()
