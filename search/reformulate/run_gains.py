"""The gains that a run expects of its changes: learned from queries that its networks did not see.

The networks of `held_out_networks` change the train queries that each left out. On these a
`GainModel` is fitted. What it expects of a query, to set a margin and to be judged, comes from a
model that was fitted without the query's part. Dev queries count for the margin alone.
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

KEPT_GAIN = 0.95  # least share of the gain that a margin may leave


class Expectation(NamedTuple):
    """Expected and true gains of held-out queries in one kind of search.

    Attributes:
        expected: [Q] by a model that was fitted without the query's part.
        gain: [Q].
        usual: Mean gain without a margin of the model.
    """

    expected: np.ndarray
    gain: np.ndarray
    usual: float


class KindGains(NamedTuple):
    """How gains come true in one kind of search.

    Attributes:
        margin: Expected gain above which a query is changed.
        by_split: "train", and "dev" if there are dev queries.
    """

    margin: float
    by_split: dict[str, Expectation]

    def test(self, split: str) -> GainTest:
        """Both gains of a split's queries compared."""
        found = self.by_split[split]
        return gain_test(found.expected, found.gain, self.margin)


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
        if kind not in self.kinds or self.kinds[kind].margin == LOWEST:
            return selection
        return selection._replace(choice=selection.choice._replace(margin=LOWEST))


def fit_run_gains(
    context: SearchContext,
    chosen: Iterable[Selection],
    train: Sample | None,
    dev: Sample | None = None,
) -> RunGains | None:
    """The model of gains for the choices of a run.

    Args:
        context: The collection and how it is searched.
        chosen: The selections of all kinds of search.
        train: Held-out train queries, which the model is fitted to; None: there are none.
        dev: Dev queries, which count for the margins alone; None: there are none.

    Returns:
        None where nothing is changed, or fewer than `FEW_QUERIES` train queries are held out.
    """
    choices = {kind_of(one.choice): one.choice for one in chosen if one.choice.scale}
    if not choices or train is None or train.part is None or len(train.queries) < FEW_QUERIES:
        return None
    judged = {kind: judged_changes(context, train, choice) for kind, choice in choices.items()}
    changes = {kind: of_kind for kind, (of_kind, _) in judged.items()}
    raw = dict(zip(changes, cross_fitted(list(changes.values()), train.part), strict=True))
    model = fit_relevance([[change for kind in changes.values() for change in kind]])
    margins, kinds = {"plain": LOWEST, "fused": LOWEST}, {}
    for kind, (of_kind, usual) in judged.items():
        gain = np.array([change.gain for change in of_kind])
        at, to = calibration(raw[kind], gain, np.ones(len(gain)))
        model = model._replace(**{f"{kind}_from": at, f"{kind}_to": to})
        expected = cross_calibrated(raw[kind], gain, train.part)
        by_split = {"train": Expectation(expected, gain, usual)}
        if dev is not None:
            of_dev, usual = judged_changes(context, dev, choices[kind])
            fusion = choices[kind].fusion
            expected = [model.expected_gain(change.ranked, fusion) for change in of_dev]
            gain = np.array([change.gain for change in of_dev])
            by_split["dev"] = Expectation(np.array(expected), gain, usual)
        margins[kind] = paying_margin(by_split.values())
        kinds[kind] = KindGains(margins[kind], by_split)
        for split in by_split:
            context.phases.say(f"expected gains, {kind}, {split}: {kinds[kind].test(split).text()}")
    return RunGains(model._replace(margins=np.array([*margins.values()])), kinds)


def judged_changes(
    context: SearchContext, sample: Sample, choice: Choice
) -> tuple[list[Change], float]:
    """All queries [Q] changed, whatever gain the network expects; and the gain of the choice."""
    plans = sample_plans(context, sample, choice._replace(margin=LOWEST))
    weights = [plan.weights for plan in plans]
    (gains,) = gains_of_weights(context, sample, [weights], choice.fusion)
    usual = gains * np.array([plan.expected > choice.margin for plan in plans])
    changes = [
        judged_change(context, query, changed, choice.fusion, float(gain))
        for query, changed, gain in zip(sample.queries, weights, gains, strict=True)
    ]
    return changes, float(usual.mean())


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
        left: list[int] = np.flatnonzero(part != number).tolist()
        out: list[int] = np.flatnonzero(part == number).tolist()
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


def paying_margin(found: Iterable[Expectation]) -> float:
    """The largest margin with which `KEPT_GAIN` of the usual gain is made on all queries.

    It is not below 0. Where even 0 leaves less, it is `LOWEST`: every query is changed.
    """
    splits = list(found)
    expected = np.concatenate([one.expected for one in splits])
    gain = np.concatenate([one.gain for one in splits])
    usual = sum(len(one.gain) * one.usual for one in splits) / len(gain)
    margins = np.unique(np.maximum(np.append(expected, 0.0), 0.0))
    made = np.array([np.mean(gain * (expected > margin)) for margin in margins])
    enough = margins[made >= KEPT_GAIN * max(usual, 0.0)]
    return float(enough[-1]) if len(enough) else LOWEST


def save_gains(gains: RunGains, folder: Path, metric: str) -> dict[str, Any]:
    """Write the model, and plots of expected beside true gains; the part of the run's summary."""
    gains.model.save(folder / GAINS_FILE)
    summary = {}
    for kind, of_kind in gains.kinds.items():
        train = of_kind.by_split["train"]
        bins = bin_means(train.expected, train.gain, train.expected > of_kind.margin)
        save_calibration(folder / f"expected_gains_{kind}.png", bins, metric)
        tests = {split: of_kind.test(split)._asdict() for split in of_kind.by_split}
        summary[kind] = {**tests, "bins": bins._asdict()}
    return summary
