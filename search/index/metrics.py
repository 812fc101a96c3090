"""Metrics by name, computed by ir-measures for each query, and differences beyond chance.

Relevance is binary: a grade above 0 is relevant. `rank_metrics` has the same in tensor code.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

OTHER_NAMES = {"map": "ap", "r": "recall", "rr": "mrr", "ndcg_cut": "ndcg", "dcg": "ndcg"}
MEASURES = {"ndcg": "nDCG", "ap": "AP", "recall": "R", "mrr": "RR"}  # as ir-measures calls them
METRICS = ("ndcg@10", "ap", "recall@40", "mrr@10")  # what a report holds
CHANCE = 0.1  # most probability that the best choice is no better than none
FLIPS, FLIPS_AT_ONCE = 2_000, 250  # draws of signs

Run = Mapping[str, Sequence[tuple[str, float]]]  # query id -> (document id, score), best first
Qrels = Mapping[str, Mapping[str, int]]  # query id -> document id -> grade


def metric_parts(name: str) -> tuple[str, int | None]:
    """Kind (ndcg, ap, recall or mrr) and cutoff (None for ap) of a metric's name.

    Raises:
        ValueError: No such metric; the message names the nearest one.
    """
    text = name.strip().lower()
    if text == "ap":
        return "ap", None
    match = re.fullmatch(r"(ndcg|recall|mrr)@([1-9]\d{0,6})", text)
    if match:
        return match[1], int(match[2])
    kind, _, depth = text.partition("@")
    kind = OTHER_NAMES.get(kind, kind)
    near = (difflib.get_close_matches(kind, list(MEASURES), n=1, cutoff=0.4) or ["ndcg"])[0]
    depth = str(int(depth)) if depth.isdecimal() and 0 < int(depth) < 10**7 else "10"
    raise ValueError(
        f"No metric {name!r}; expected ndcg@k, ap, recall@k or mrr@k with a whole k from 1: "
        f"did you mean {near if near == 'ap' else f'{near}@{depth}'!r}?"
    )


def cutoff(name: str) -> int | None:
    """Number of ranks that count, such as 10 for ndcg@10; None: all ranks count."""
    return metric_parts(name)[1]


def per_query(
    qrels: Qrels, run: Run, metrics: Sequence[str] = METRICS
) -> dict[str, dict[str, float]]:
    """Metrics of each query with judgments, computed by ir-measures.

    Args:
        qrels: Judgments of one split.
        run: Only its order counts. A query with judgments that is missing here has 0.
        metrics: Names as in `metric`.

    Returns:
        Metric -> query id -> value, in the order of `qrels`.
    """
    measures, scored = _measures(metrics), _by_place(run)
    values = {name: dict.fromkeys(qrels, 0.0) for name in metrics}
    names = {str(measure): name for name, measure in zip(metrics, measures, strict=True)}
    import ir_measures  # `_measures` has said what to do without it

    for result in ir_measures.iter_calc(measures, _binary(qrels), scored):
        values[names[str(result.measure)]][result.query_id] = float(result.value)
    return values


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of `a - b` over queries with its 95% percentile interval.

    Args:
        a: [n] a metric of each query under one system.
        b: [n] the same metric of the same queries under the other system.
        resamples: Draws of n queries with replacement.
        seed: Seed of the draws.

    Returns:
        (difference, low, high).

    Source: Efron & Tibshirani 1993; for retrieval Sakai 2006, "Evaluating Evaluation Metrics Based
    on the Bootstrap".
    """
    from scipy import stats  # slow to load, and only reports need it

    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(
            f"paired_bootstrap() got values of shapes {first.shape} and {second.shape}; expected "
            "one value per query from each, for the same queries: give two lists of one length."
        )
    difference = first - second
    mean = float(difference.mean())
    if np.ptp(difference) == 0:  # one query, or no spread: every draw has this mean
        return mean, mean, mean
    interval = stats.bootstrap(
        (difference,),
        np.mean,
        n_resamples=resamples,
        batch=1_000,
        method="percentile",
        random_state=np.random.default_rng(seed),  # pyright: ignore[reportCallIssue]
    ).confidence_interval
    return mean, float(interval.low), float(interval.high)


def best_row(gains: np.ndarray, most: float, seed: int = 0) -> tuple[int | None, float]:
    """The row of [m, Q] gains with the largest mean among those above 0 beyond chance.

    Many choices are tried on the same queries, so the best one looks better than it is. A
    permutation test says how large the best of so many would be by chance.

    Args:
        gains: [m, Q] of each of m choices.
        most: Largest probability that counts as beyond chance.
        seed: Seed of the signs.

    Returns:
        The row, None if there is none; and the probability of the best row under chance.

    Sources: Westfall & Young 1993, "Resampling-Based Multiple Testing" (the largest statistic under
    random signs); Smucker, Allan & Carterette 2007, "A Comparison of Statistical Significance Tests
    for Information Retrieval Evaluation".
    """
    count = gains.shape[1]
    if count < 2:
        return None, 1.0
    rng, squares = np.random.default_rng(seed), np.mean(np.square(gains), axis=1)
    by_chance = []
    for _ in range(FLIPS // FLIPS_AT_ONCE):
        signs = 2.0 * rng.integers(0, 2, (FLIPS_AT_ONCE, count), np.int8) - 1.0
        means = signs @ gains.T / count
        by_chance.append(_statistic(means, squares, count).max(axis=1))
    by_chance = np.concatenate(by_chance)
    statistic = _statistic(gains.mean(axis=1), squares, count)
    chances = (1 + (by_chance[:, np.newaxis] >= statistic).sum(axis=0)) / (FLIPS + 1)
    passed = np.where(chances <= most, gains.mean(axis=1), -np.inf)
    best = int(passed.argmax())
    return (best if passed[best] > 0.0 else None), float(chances.min())


def _statistic(mean: np.ndarray, squares: np.ndarray, count: int) -> np.ndarray:
    """Student's t of means, from mean squares."""
    variance = np.maximum(squares - mean * mean, 1e-12)
    return mean * math.sqrt(count) / np.sqrt(variance)


def _measures(metrics: Sequence[str]) -> list:
    try:
        import ir_measures
    except ImportError:
        raise ModuleNotFoundError(
            "The package ir-measures is not installed, and reports need it: "
            "pip install 'kytolly[retrieval]'."
        ) from None
    names = [MEASURES[kind] + (f"@{k}" if k else "") for kind, k in map(metric_parts, metrics)]
    return [ir_measures.parse_measure(name) for name in names]


def _by_place(run: Run) -> dict[str, dict[str, float]]:
    """Scores that only say the order, because each evaluator breaks ties in its own way."""
    return {
        query: {doc: -float(rank) for rank, (doc, _) in enumerate(ranking)}
        for query, ranking in run.items()
        if len(ranking)
    }


def _binary(qrels: Qrels) -> dict[str, dict[str, int]]:
    return {q: {doc: int(grade > 0) for doc, grade in docs.items()} for q, docs in qrels.items()}
