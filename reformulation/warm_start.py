"""The warm start: a network that learns from judgments before PPO does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kytolly.model.candidate_scorer import CandidateScorer
from kytolly.reformulation.choice import HeldOut
from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.listwise import fit_listwise
from kytolly.reformulation.network import NumpyScorer, copied_scorer, make_scorer
from kytolly.reformulation.options import ReformulationOptions

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


def held_out_networks(
    options: ReformulationOptions,
    train: DeviceQueries,
    synthetic: DeviceQueries | None,
    begin: CandidateScorer | None,
    say: Say,
) -> HeldOut | None:
    """Networks made as the warm start is, each without a part of the train queries.

    They say how much the warm start gains on queries that it did not learn from.

    Args:
        options: How to learn.
        train: Queries with judgments.
        synthetic: Synthetic queries.
        begin: The network to begin with, which has learned from none of `train`; None: a new one.
        say: Receives a line for each network.

    Returns:
        None if it was not asked for, or there are too few queries.
    """
    folds, count = options.training.held_out_folds, train.num_queries
    if folds < 2 or count < folds:
        return None
    fold = np.random.default_rng(options.seed).permutation(count) % folds
    scorers = []
    for number in range(folds):
        say(f"held-out queries: part {number + 1} of {folds}")
        rows = np.flatnonzero(fold != number)
        network = warm_network(options, train, synthetic, begin, lambda line: None, rows)
        scorers.append(NumpyScorer(network))
    return HeldOut(train, scorers, fold)
