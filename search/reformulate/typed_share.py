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

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, TYPED_SHARE, 0.85)
MOST_DRIFT = 1.2


def with_typed_shares(
    context: SearchContext, sample: Sample | None, fusions: Sequence[float]
) -> SearchContext:
    """The context with the least shares that keep drift low, where the options leave them open.

    All that the network proposes is searched for, in all documents, with each weight of the
    cosines. Fewer than `FEW_QUERIES` queries say nothing.

    Args:
        context: The collection and how it is searched.
        sample: Dev queries, and the network that proposes for them; None: there are none.
        fusions: Weights of the cosines.
    """
    retrieval = context.options.retrieval
    if retrieval.typed_share != AUTO:
        return context
    plain, fused = least_share(context, sample, 0.0), retrieval.fused_typed_share
    if fused == AUTO:
        with_cosines = [fusion for fusion in fusions if fusion > 0.0]
        fused = least_share(context, sample, with_cosines[0]) if with_cosines else plain
    return context.with_shares(plain, fused)


def least_share(context: SearchContext, sample: Sample | None, fusion: float) -> float:
    """The least of `SHARES` with which searches of dev queries drift by `MOST_DRIFT` at most."""
    if sample is None or len(sample.queries) < FEW_QUERIES:
        return TYPED_SHARE
    found = dict(zip(SHARES, drifts(context, sample, fusion), strict=True))
    share = min((one for one in SHARES if found[one] <= MOST_DRIFT), default=SHARES[-1])
    base = f"BM25 + {fusion:g} cosines" if fusion else "BM25"
    context.phases.say(
        f"over {base}, typed words keep at least {share:g} of a query's weight: searches of "
        f"{len(sample.queries):,} dev queries drift {found[share]:.2f}x"
    )
    return share


def drifts(context: SearchContext, sample: Sample, fusion: float) -> list[float]:
    """[len(SHARES)] first documents without a rare typed word, over those as it was typed."""
    choice, queries = Choice(fusion, 1.0), sample.queries
    weights = [[query.weights for query in queries]]
    for share in SHARES:
        plans = sample_plans(context.with_shares(share, share), sample, choice)
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
