"""The network of the package, in a run where nothing that was learned helps beyond chance.

A few held-out queries cannot show that a network helps. The package's has been tested on other
collections, and its model of gains changes a query only where that pays: so it is used unless the
held-out queries speak against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kytolly.search.reformulate.choice import PRETRAINED_SCALE, Choice, Choices, Evidence, Selection
from kytolly.search.reformulate.gain_model import GainModel
from kytolly.search.reformulate.network import NumpyScorer
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import Sample, gains_of_weights

LEAST = 30  # held-out queries, below which not even the sign of a mean says something


def package_selections(
    context: SearchContext,
    network: NumpyScorer,
    fusions: Mapping[str, float],
    samples: Sequence[Sample],
) -> dict[str, Selection] | None:
    """Choices that use the network of the package, where it gains on held-out queries.

    Args:
        context: The collection, searched as by `for_unknown_documents`.
        network: The network of the package.
        fusions: Kind of search -> weight of the cosines.
        samples: Queries that the network did not learn from.

    Returns:
        None where no kind of search gains, or fewer than `LEAST` queries were held out.
    """
    if sum(len(sample.queries) for sample in samples) < LEAST:
        return None
    choices, gains = Choices(None, {}, untested=PRETRAINED_SCALE), GainModel.read()
    found = {
        kind: _selection(Reformulator(context, network, choices, fusion, gains), samples)
        for kind, fusion in fusions.items()
    }
    return found if any(one.choice.scale for one in found.values()) else None


def _selection(reformulator: Reformulator, samples: Sequence[Sample]) -> Selection:
    context, fusion = reformulator.context, reformulator.fusion
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
        network=0,
        tried=0,
        chance=1.0,
        dev_gain=evidence[0].gain,
        changed=float(np.mean(changed)) if scale else 0.0,
        whole_gain=gain,
        evidence=tuple(evidence) if scale else (),
    )
