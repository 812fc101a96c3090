"""The use of a network's proposals: chosen on dev queries, with "nothing" among the choices.

Many choices are tried on the same queries, so the best one looks better than it is. A permutation
test says how large the best of so many would be by chance. Only what passes it is used, and the
gain that is reported comes from cross-validation: that of queries on which nothing was chosen.
Train queries count as well, each with a network that learned without it.

Sources: those of `search.index.metrics`; Stone 1974 (cross-validation of a choice).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from kytolly.config.files import read_json
from kytolly.record.files import write_text
from kytolly.search.index.metrics import CHANCE, best_row
from kytolly.search.reformulate.device_env import DeviceQueries, used_proposals
from kytolly.search.reformulate.network import NumpyScorer

SCALES = (1.0, 0.5, 0.25)  # of all weights
LOWEST = -1.0  # margin that every query passes
MARGINS = (LOWEST, 0.0)  # a query is changed where more gain than this is expected
USES = tuple(itertools.product(SCALES, MARGINS))
FUSIONS = (0.0, 0.25, 0.5, 1.0, 2.0)  # weights of the cosines that are tried
FOLDS = 5
UNTESTED = 0.5  # scale where no dev query tests it
PRETRAINED_SCALE = 1.5  # of the package's network, each of whose changes its model of gains tests
CHOICE_FILE = "choice.json"
FEW_QUERIES = 50  # on dev: with fewer, a choice says little


class Choice(NamedTuple):
    """The use of proposals in a search with one weight of the cosines.

    Attributes:
        fusion: Weight of the cosines.
        scale: Factor of all weights of candidates; 0: queries stay as they are.
        margin: A query is changed where more gain than this is expected.
    """

    fusion: float
    scale: float = 0.0
    margin: float = LOWEST


class Choices(NamedTuple):
    """All choices of a run.

    Attributes:
        fusion: Weight of the cosines; None: nothing was chosen.
        by_fusion: Choice of each weight of the cosines that was tried.
        digest: Digest of the documents that they were made for.
        untested: Scale for a weight of the cosines that was not tried.
    """

    fusion: float | None
    by_fusion: dict[float, Choice]
    digest: str = ""
    untested: float = UNTESTED

    def at(self, fusion: float) -> Choice:
        """The choice for searches with a weight of the cosines, even if it was not tried."""
        return self.by_fusion.get(fusion, Choice(fusion, self.untested))


class HeldOut(NamedTuple):
    """Train queries, and networks each of which learned without some of them.

    Attributes:
        queries: `Q` queries.
        networks: The networks.
        fold: [Q] the network that did not learn from a query.
    """

    queries: DeviceQueries
    networks: Sequence[NumpyScorer]
    fold: np.ndarray

    def gains(self, fusion: float) -> np.ndarray:
        """[len(USES), Q] gains of each use of the network that did not learn from a query."""
        gains = np.zeros((len(USES), len(self.fold)))
        for number, network in enumerate(self.networks):
            rows = np.flatnonzero(self.fold == number)
            if len(rows):
                gains[:, rows] = _gains(network, self.queries, fusion, rows)[0]
        return gains


class Evidence(NamedTuple):
    """What a choice gains on the queries of one split, none of which its network learned from.

    Attributes:
        split: "dev" or "train".
        queries: Their number.
        gain: Mean gain.
    """

    split: str
    queries: int
    gain: float


class Selection(NamedTuple):
    """The choice that held-out queries allow.

    Attributes:
        choice: The use.
        network: Place of the network whose proposals are used.
        tried: Number of choices that were compared.
        chance: Probability that the best of so many gains as much where none is better than 0.
        dev_gain: Gain on dev queries, by cross-validation of the choice; without any, on train
            queries.
        changed: Share of dev queries that are changed.
        whole_gain: Gain in searches of all documents (`selection`); None: nothing was searched.
        evidence: Gains of the choice on the queries that it was made on.
    """

    choice: Choice
    network: int
    tried: int
    chance: float
    dev_gain: float
    changed: float
    whole_gain: float | None = None
    evidence: tuple[Evidence, ...] = ()


def select(
    networks: Sequence[NumpyScorer],
    dev: DeviceQueries | None,
    fusion: float,
    held_out: Sequence[HeldOut | None] = (),
    seed: int = 0,
) -> Selection:
    """The best use of one of several networks, or none, for searches with a weight of cosines.

    Args:
        networks: The networks.
        dev: Queries that none of them learned from; None: there are none.
        fusion: Weight of the cosines.
        held_out: More queries for each network, of which it, or one made as it was, did not learn;
            None: there are none.
        seed: Seed of the draws.
    """
    tried = [(number, Choice(fusion, *use)) for number in range(len(networks)) for use in USES]
    more = [None if queries is None else queries.gains(fusion) for queries in held_out]
    more += [None] * (len(networks) - len(more))
    gains, changed = [], []
    for network in networks:
        network_gains, share = (np.zeros((len(USES), 0)), [1.0] * len(USES))
        if dev is not None:
            network_gains, share = _gains(network, dev, fusion)
        gains.append(network_gains)
        changed += share
    best, chance = _best_use(gains, more, seed)
    dev_gain = cross_validated_gain(gains, more, seed)
    if best is None:
        return Selection(Choice(fusion), 0, len(tried), chance, dev_gain, 0.0)
    network, choice = tried[best]
    parts = {"dev": gains[network], "train": more[network]}
    evidence = tuple(
        Evidence(split, part.shape[1], float(part[best % len(USES)].mean()))
        for split, part in parts.items()
        if part is not None and part.shape[1]
    )
    share = changed[best]
    return Selection(choice, network, len(tried), chance, dev_gain, share, evidence=evidence)


def _gains(
    network: NumpyScorer, queries: DeviceQueries, fusion: float, rows: np.ndarray | None = None
) -> tuple[np.ndarray, list[float]]:
    """Gains [len(USES), R] of each use of a network, and the share of queries that it changes.

    `rows` [R] are those of the table; None: all.
    """
    rows = np.arange(queries.num_queries) if rows is None else rows
    weights, expected = proposals(network, queries, fusion, rows)
    start = queries.values(fusion, np.zeros_like(weights), rows)
    features, state = queries.table.candidate_features[rows], queries.table.state_features[rows]
    gains, changed = [], []
    for scale, margin in USES:
        used = np.where(expected[:, np.newaxis] > margin, weights * np.float32(scale), 0.0)
        used = used_proposals(used, features, state, queries.rules, fusion)
        gains.append(queries.values(fusion, used, rows) - start)
        changed.append(float(np.mean(used.any(axis=1))))
    return np.stack(gains), changed


def _best_use(
    gains: Sequence[np.ndarray], more: Sequence[np.ndarray | None], seed: int
) -> tuple[int | None, float]:
    """The use of a network to take, None if none is better than nothing, and its chance.

    Args:
        gains: For each network the gains [len(USES), Q] on dev queries.
        more: For each network the gains [len(USES), R] on other queries; None: there are none.
        seed: Seed of the signs.
    """
    groups: dict[int, list[int]] = {}  # networks with the same queries are tested together
    for number, other_gains in enumerate(more):
        groups.setdefault(0 if other_gains is None else other_gains.shape[1], []).append(number)
    passed, chances, dev = [], [], np.concatenate(gains).sum(axis=1)
    for numbers in groups.values():
        parts = [(gains[number], more[number]) for number in numbers]
        rows = [
            on_dev if others is None else np.concatenate([on_dev, others], axis=1)
            for on_dev, others in parts
        ]
        best, chance = best_row(np.concatenate(rows), CHANCE / len(groups), seed)
        chances.append(min(1.0, chance * len(groups)))
        if best is not None:
            passed.append(numbers[best // len(USES)] * len(USES) + best % len(USES))
    return max(passed, key=lambda use: dev[use], default=None), min(chances)


def select_fusion(dev: DeviceQueries, usual: float, seed: int = 0) -> float:
    """The weight of the cosines: the usual one, unless another is better beyond chance."""
    nothing = np.zeros((dev.num_queries, dev.candidates), np.float32)
    others = [fusion for fusion in FUSIONS if fusion != usual]
    start = dev.values(usual, nothing)
    gains = np.array([dev.values(fusion, nothing) - start for fusion in others])
    best, _ = best_row(gains, CHANCE, seed)
    return usual if best is None else others[best]


def proposals(
    network: NumpyScorer, queries: DeviceQueries, fusion: float, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Weights [R, N] that a network proposes for rows [R] of the table, and expected gains [R].

    Without `rows`, those of all queries.
    """
    chosen, table = slice(None) if rows is None else rows, queries.table
    state = table.state_features[chosen]
    column = np.full((len(state), 1), fusion, np.float32)
    return network(table.candidate_features[chosen], np.concatenate([state, column], axis=1))


def cross_validated_gain(
    gains: Sequence[np.ndarray], more: Sequence[np.ndarray | None], seed: int = 0
) -> float:
    """Mean gain of what the other folds' queries would choose; for arguments see `_best_use`."""
    if not gains[0].shape[1]:  # no dev queries: others take their place, for networks that have any
        gains = [np.zeros((len(USES), 0)) if part is None else part for part in more]
        count = max(part.shape[1] for part in gains)
        gains = [part if part.shape[1] else np.zeros((len(USES), count)) for part in gains]
        more = [None] * len(gains)
    count = gains[0].shape[1]
    fold, whole = np.random.default_rng(seed).permutation(count) % FOLDS, np.concatenate(gains)
    total = 0.0
    for number in range(min(FOLDS, count)):
        best, _ = _best_use([part[:, fold != number] for part in gains], more, seed)
        total += 0.0 if best is None else float(whole[best, fold == number].sum())
    return total / max(count, 1)


def write_choices(folder: Path, fusion: float, choices: Sequence[Choice], digest: str) -> None:
    """Write the weight of the cosines, and what is used with it and without."""
    rows = [choice._asdict() for choice in dict.fromkeys(choices)]
    content = {"fusion": fusion, "choices": rows, "digest": digest}
    write_text(folder / CHOICE_FILE, json.dumps(content) + "\n")


def read_choices(folder: Path) -> Choices:
    """The choices of `write_choices`; where nothing was chosen, all is used at a fixed scale.

    Raises:
        ValueError: The file holds something else.
    """
    path = folder / CHOICE_FILE
    if not path.is_file():
        return Choices(None, {})
    content = read_json(path, _ChoiceFile, "expected what a training run writes: train again")
    choices = [Choice(**msgspec.structs.asdict(row)) for row in content.choices]
    return Choices(content.fusion, {choice.fusion: choice for choice in choices}, content.digest)


class _ChoiceRow(msgspec.Struct, forbid_unknown_fields=True):
    fusion: Annotated[float, msgspec.Meta(ge=0, le=1_000)]
    scale: Annotated[float, msgspec.Meta(ge=0, le=2)]
    margin: Annotated[float, msgspec.Meta(ge=-1, le=1)]


class _ChoiceFile(msgspec.Struct, forbid_unknown_fields=True):
    fusion: Annotated[float, msgspec.Meta(ge=0, le=1_000)]
    choices: Annotated[list[_ChoiceRow], msgspec.Meta(max_length=8)]
    digest: Annotated[str, msgspec.Meta(max_length=64)]
