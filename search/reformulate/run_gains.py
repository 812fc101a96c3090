"""The gains that a run expects of its changes: learned from queries that its networks did not see.

The networks of `held_out_networks` change the train queries that each left out. On these a
`GainModel` is fitted. What it expects of a query, to set a margin and to be judged, comes from a
model that was fitted without the query's part. No dev or test query is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kytolly.search.reformulate.choice import FEW_QUERIES, LOWEST, Choice
from kytolly.search.reformulate.gain_fitting import (
    Change,
    GainTest,
    calibration,
    fit_relevance,
    gain_test,
    judged_change,
    margin_of,
)
from kytolly.search.reformulate.gain_model import GAINS_FILE, GainModel
from kytolly.search.reformulate.report import bin_means, save_calibration
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import (
    Sample,
    Selection,
    gains_of_weights,
    sample_plans,
)

KEPT_GAIN = 0.9  # least share of the gain that a margin may leave


class KindGains(NamedTuple):
    """How the gains in one kind of search come true on the train queries.

    Attributes:
        expected: [Q] gains, by models that were fitted without a query's part.
        gain: [Q] true ones.
        test: Both compared.
    """

    expected: np.ndarray
    gain: np.ndarray
    test: GainTest


class RunGains(NamedTuple):
    """What a run expects of its changes.

    Attributes:
        model: The model.
        kinds: Kind of search -> how its gains come true: "plain" with BM25 alone, "fused" with
            cosines.
    """

    model: GainModel
    kinds: dict[str, KindGains]

    def applied(self, selection: Selection) -> Selection:
        """A selection without the network's margin, where that of the model takes its place."""
        kind = kind_of(selection.choice)
        if kind not in self.kinds or self.kinds[kind].test.margin == LOWEST:
            return selection
        return selection._replace(choice=selection.choice._replace(margin=LOWEST))


def fit_run_gains(
    context: SearchContext, chosen: Iterable[Selection], train: Sample | None
) -> RunGains | None:
    """The model of gains for the choices of a run.

    Args:
        context: The collection and how it is searched.
        chosen: The selections of all kinds of search.
        train: Held-out train queries; None: there are none.

    Returns:
        None where nothing is changed, or fewer than `FEW_QUERIES` train queries are held out.
    """
    choices = {kind_of(one.choice): one.choice for one in chosen if one.choice.scale}
    if not choices or train is None or train.part is None or len(train.queries) < FEW_QUERIES:
        return None
    changes, usual = dict[str, list[Change]](), dict[str, np.ndarray]()
    for kind, choice in choices.items():
        plans = sample_plans(context, train, choice._replace(margin=LOWEST))
        usual[kind] = np.array([plan.expected > choice.margin for plan in plans])
        weights = [plan.weights for plan in plans]
        (gains,) = gains_of_weights(context, train, [weights], choice.fusion)
        changes[kind] = [
            judged_change(context, query, changed, choice.fusion, float(gain))
            for query, changed, gain in zip(train.queries, weights, gains, strict=True)
        ]
    raw = dict(zip(changes, cross_fitted(list(changes.values()), train.part), strict=True))
    model = fit_relevance([[change for kind in changes.values() for change in kind]])
    margins, kinds = {"plain": LOWEST, "fused": LOWEST}, {}
    for kind, of_kind in changes.items():
        gain = np.array([change.gain for change in of_kind])
        expected = cross_calibrated(raw[kind], gain, train.part)
        margins[kind] = paying_margin(expected, gain, float(np.mean(gain * usual[kind])))
        at, to = calibration(raw[kind], gain, np.ones(len(gain)))
        model = model._replace(**{f"{kind}_from": at, f"{kind}_to": to})
        test = gain_test(expected, gain, margins[kind])
        kinds[kind] = KindGains(expected, gain, test)
        context.phases.say(f"expected gains, {kind}: {test.text()}")
    return RunGains(model._replace(margins=np.array([*margins.values()])), kinds)


def kind_of(choice: Choice) -> str:
    """The kind of search that a choice is for."""
    return "fused" if choice.fusion else "plain"


def cross_fitted(changes: Sequence[Sequence[Change]], part: np.ndarray) -> list[np.ndarray]:
    """For each list of changes [Q] the uncalibrated gains [Q] of models without a query's part.

    Args:
        changes: The same queries, changed for several kinds of search.
        part: [Q] the part of each query.
    """
    expected = [np.zeros(len(part)) for _ in changes]
    for number in np.unique(part):
        left, out = np.flatnonzero(part != number), np.flatnonzero(part == number)
        model = fit_relevance([[kind[row] for kind in changes for row in left]])
        for gains, kind in zip(expected, changes, strict=True):
            gains[out] = [model.uncalibrated_gain(kind[row].ranked) for row in out]
    return expected


def cross_calibrated(raw: np.ndarray, gain: np.ndarray, part: np.ndarray) -> np.ndarray:
    """[Q] expected gains, each calibrated on the queries of other parts."""
    expected = np.zeros(len(raw))
    for number in np.unique(part):
        left, out = part != number, part == number
        at, to = calibration(raw[left], gain[left], np.ones(left.sum()))
        expected[out] = np.interp(raw[out], at, to)
    return expected


def paying_margin(expected: np.ndarray, gain: np.ndarray, usual: float) -> float:
    """The expected gain above which queries are changed.

    It is that which halves the queries that are hurt, or else 0, if that leaves `KEPT_GAIN` of the
    usual gain; or else `LOWEST`, which changes every query.

    Args:
        expected: [Q] expected gains of changes.
        gain: [Q] true ones.
        usual: Mean gain without this margin.
    """
    for margin in (margin_of(expected, gain, np.ones(len(gain))), 0.0):
        if np.mean(gain * (expected > margin)) >= KEPT_GAIN * usual:
            return margin
    return LOWEST


def save_gains(gains: RunGains, folder: Path, metric: str) -> dict[str, Any]:
    """Write the model, and plots of expected beside true gains; the part of the run's summary."""
    gains.model.save(folder / GAINS_FILE)
    summary = {}
    for kind, of_kind in gains.kinds.items():
        bins = bin_means(of_kind.expected, of_kind.gain, of_kind.expected > of_kind.test.margin)
        save_calibration(folder / f"expected_gains_{kind}.png", bins, metric)
        summary[kind] = {**of_kind.test._asdict(), "bins": bins._asdict()}
    return summary
