"""The network of the package, in a run where nothing that was learned helps beyond chance.

A few held-out queries cannot show that a network helps. The package's has been tested on other
collections, and its model of gains changes a query only where that pays: so it is used unless the
held-out queries speak against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import PRETRAINED_SCALE, Choice, Choices, Evidence, Selection
from kytolly.search.reformulate.gain_model import GainModel
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import Sample, gains_of_weights, mined_queries

LEAST = 30  # held-out queries, below which not even the sign of a mean says something


def package_selections(
    context: SearchContext,
    network: CandidateScorer,
    place: int,
    fusions: Mapping[str, float],
    held_out: Mapping[str, np.ndarray],
) -> dict[str, Selection] | None:
    """Choices that use the network of the package, where it loses nothing on held-out queries.

    Args:
        context: The collection, searched as by `for_unknown_documents`.
        network: The network of the package.
        place: Its place among the run's networks.
        fusions: Kind of search -> weight of the cosines.
        held_out: Split -> places of its queries that the network did not learn from.

    Returns:
        None where no kind of search gains, or fewer than `LEAST` queries were held out.
    """
    scorer = NumpyScorer(network)
    samples = []
    for split, numbers in held_out.items():
        queries = mined_queries(context, split, numbers)
        if queries:
            samples.append(Sample(split, queries, [scorer], np.zeros(len(queries), np.int64)))
    if sum(len(sample.queries) for sample in samples) < LEAST:
        return None
    found = {
        kind: _selection(context, network, place, fusion, samples)
        for kind, fusion in fusions.items()
    }
    return found if any(one.choice.scale for one in found.values()) else None


def _selection(
    context: SearchContext,
    network: CandidateScorer,
    place: int,
    fusion: float,
    samples: Sequence[Sample],
) -> Selection:
    choices = Choices(None, {}, untested=PRETRAINED_SCALE)
    reformulator = Reformulator(context, network, choices, fusion, GainModel.read())
    gains, changed, evidence = [], [], []
    for sample in samples:
        numbers = [query.number for query in sample.queries]
        plans = reformulator.plans(context.collection, numbers, (sample.queries, ()))
        (of_split,) = gains_of_weights(context, sample, [[plan.weights for plan in plans]], fusion)
        gains.append(of_split)
        changed += [bool(plan.changes) for plan in plans]
        evidence.append(Evidence(sample.split, len(of_split), float(of_split.mean())))
    gain = float(np.concatenate(gains).mean())
    scale = PRETRAINED_SCALE if gain > 0.0 else 0.0
    return Selection(
        choice=Choice(fusion, scale),
        network=place,
        tried=0,
        chance=1.0,
        dev_gain=evidence[0].gain,
        changed=float(np.mean(changed)) if scale else 0.0,
        whole_gain=gain,
        evidence=tuple(evidence) if scale else (),
    )
