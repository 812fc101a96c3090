"""The warm start: a network that learns from judgments before PPO does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kytolly.search.index.held_out_parts import JudgedTexts, held_out_parts
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import HeldOut
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.listwise import fit_listwise
from kytolly.search.reformulate.network import NumpyScorer, copied_scorer, make_scorer
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable

Say = Callable[[str], None]


def warm_network(
    options: ReformulationOptions,
    train: DeviceQueries | None,
    synthetic: DeviceQueries | None,
    begin: CandidateScorer | None,
    say: Say,
    rows: np.ndarray | None = None,
) -> CandidateScorer:
    """A network that has learned from synthetic queries, if there are any, and from judgments.

    Args:
        options: How to learn.
        train: Queries with judgments.
        synthetic: Synthetic queries.
        begin: The network to begin with; None: a new one.
        say: Receives a line for each pass.
        rows: Rows of `train` to learn from; None: all.
    """
    training, network = options.training, begin
    for name, queries in (("synthetic queries", synthetic), ("", train)):
        if queries is None:
            continue
        network = copied_scorer(
            network or make_scorer(queries.table, options.rl_agent), options.rl_agent.dropout
        )

        def watch(epoch: int, loss: float, error: float, name: str = name) -> None:
            say(f"warm start{name and ', '}{name}: pass {epoch}, loss {loss:.4f}")

        if training.warm_start_epochs:
            own = np.arange(queries.num_queries)
            fit_listwise(
                network,
                queries,
                [own if rows is None or queries is synthetic else rows],
                training.warm_start_epochs,
                training.warm_start_learning_rate,
                options.seed,
                training.weight_cost,
                watch,
            )
    if network is None:
        raise ValueError("there is no query to learn from, expected some: see `prepare`.")
    return network


def parts_of(
    context: SearchContext, train: QueryTable, dev: QueryTable | None
) -> np.ndarray | None:
    """[Q] the part of each train query that `held_out_networks` leaves out together.

    Args:
        context: Has the collection and the options.
        train: Queries of the split "train".
        dev: Those of "dev"; None: there are none.

    Returns:
        None if none are asked for, or there are too few queries.
    """
    folds, collection = context.options.training.held_out_folds, context.collection
    judged = []
    for split, table in (("train", train), ("dev", dev)):
        numbers: list[int] = [] if table is None else table.number.tolist()
        others = [collection.relevant_others(number, split) for number in numbers]
        judged.append(JudgedTexts([collection.queries[number] for number in numbers], others))
    if folds < 2 or len(set(judged[0].texts)) < folds:
        return None
    return held_out_parts(judged[0], judged[1], folds, context.options.seed)


def held_out_networks(
    options: ReformulationOptions,
    train: DeviceQueries,
    fold: np.ndarray,
    synthetic: DeviceQueries | None,
    begin: CandidateScorer | None,
    say: Say,
) -> HeldOut:
    """Networks made as the warm start is, each without a part of the train queries.

    They say how much the warm start gains on queries that it did not learn from.

    Args:
        options: How to learn.
        train: Queries with judgments.
        fold: [Q] the part of each.
        synthetic: Synthetic queries.
        begin: The network to begin with, which has learned from none of `train`; None: a new one.
        say: Receives a line for each network.
    """
    scorers, folds = [], int(fold.max()) + 1
    for number in range(folds):
        say(f"held-out queries: part {number + 1} of {folds}")
        rows = np.flatnonzero(fold != number)
        network = warm_network(options, train, synthetic, begin, lambda line: None, rows)
        scorers.append(NumpyScorer(network))
    return HeldOut(train, scorers, fold)
