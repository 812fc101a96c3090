"""The share of a query that typed words keep, where held-out queries choose it.

A smaller share lets a query change more, and gains more, until searches drift away from what was
typed (`drift`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kytolly.search.index.tokens import AUTO
from kytolly.search.reformulate.choice import FEW_QUERIES, Choice
from kytolly.search.reformulate.drift import TOP
from kytolly.search.reformulate.options import TYPED_SHARE
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import Sample, sample_plans

SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, TYPED_SHARE, 0.85)
MOST_DRIFT = 1.2


def with_typed_share(
    context: SearchContext, sample: Sample | None, fusions: Sequence[float]
) -> SearchContext:
    """The context with the least share that keeps drift low, where the options leave it open.

    All that the network proposes is searched for, in all documents, with each weight of the
    cosines. Fewer than `FEW_QUERIES` queries say nothing.

    Args:
        context: The collection and how it is searched.
        sample: Dev queries, and the network that proposes for them; None: there are none.
        fusions: Weights of the cosines.
    """
    if context.options.retrieval.typed_share != AUTO:
        return context
    share, count = TYPED_SHARE, 0 if sample is None else len(sample.queries)
    if sample is not None and count >= FEW_QUERIES:
        drift = {fusion: drifts(context, sample, fusion) for fusion in fusions}
        worst = [max(ratios) for ratios in zip(*drift.values(), strict=True)]
        fits = [share for share, ratio in zip(SHARES, worst, strict=True) if ratio <= MOST_DRIFT]
        share = min(fits, default=SHARES[-1])
        ratios = " and ".join(
            f"{of_share[SHARES.index(share)]:.2f}x with {fusion:g} cosines"
            for fusion, of_share in drift.items()
        )
        context.phases.say(
            f"typed words keep at least {share:g} of a query's weight: on {count:,} dev "
            f"queries searches drift {ratios}"
        )
    return context.with_share(share)


def drifts(context: SearchContext, sample: Sample, fusion: float) -> list[float]:
    """[len(SHARES)] first documents without a rare typed word, over those as it was typed."""
    choice, queries = Choice(fusion, 1.0), sample.queries
    weights = [[query.weights for query in queries]]
    for share in SHARES:
        plans = sample_plans(context.with_share(share), sample, choice)
        weights.append([plan.weights for plan in plans])
    numbers = [query.number for query in queries]
    before, *after = (
        sum(
            context.drifted(query.weights, hits)
            for query, hits in zip(queries, ranking, strict=True)
        )
        for ranking in context.rank_all(context.collection, numbers, weights, fusion, TOP)
    )
    return [count / max(before, 1) for count in after]
