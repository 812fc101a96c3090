"""Retrieval metrics: from the ranks of relevant documents as rewards, by ir-measures as results.

A metric does not need the ranking, only the ranks of the few relevant documents, and a rank is a
count of larger scores. That is tensor code without a sort, which compiles.

Relevance is binary: a grade above 0 is relevant. Sources: Järvelin & Kekäläinen 2002 (nDCG, here
with binary gains and the discount 1 / log2(rank + 1), ranks from 1, as trec_eval's ndcg_cut);
Voorhees & Harman 2005, "TREC" (average precision, recall, reciprocal rank).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from kytolly.search.index.metric_names import MEASURES, metric_parts

NOT_RANKED = 2**30  # the rank of padding: below every cutoff
METRICS = ("ndcg@10", "ap", "recall@40", "mrr@10")  # what a report holds

Run = Mapping[str, Sequence[tuple[str, float]]]  # query id -> (document id, score), best first
Qrels = Mapping[str, Mapping[str, int]]  # query id -> document id -> grade


def relevant_ranks(scores: tf.Tensor, relevant: tf.Tensor) -> tf.Tensor:
    """Ranks of the relevant documents: a document's rank is the number of documents before it.

    Documents with a larger score come first; of equal scores, the smaller index.

    Args:
        scores: [.., D] of all documents.
        relevant: [.., R] int32 document indices, padded with -1.

    Returns:
        [.., R] int32 ranks from 0, NOT_RANKED for padding. Called eagerly it holds [.., R, D]
        truth values; compiled by XLA it does not.
    """
    scores, relevant = tf.convert_to_tensor(scores), tf.convert_to_tensor(relevant, tf.int32)
    axes = scores.shape.rank or 1
    own = tf.gather(scores, tf.maximum(relevant, 0), axis=-1, batch_dims=axes - 1)
    own, all_scores = own[..., tf.newaxis], scores[..., tf.newaxis, :]
    position = tf.range(tf.shape(scores)[-1])
    before = position < relevant[..., tf.newaxis]
    ahead = (all_scores > own) | ((all_scores == own) & before)
    rank = tf.reduce_sum(tf.cast(ahead, tf.int32), axis=-1)
    return tf.where(relevant >= 0, rank, NOT_RANKED)


def metric(name: str, ranks: tf.Tensor, relevant_counts: tf.Tensor) -> tf.Tensor:
    """A metric from the ranks of relevant documents.

    Args:
        name: ndcg@k, ap, recall@k or mrr@k.
        ranks: [.., R] int32 ranks from 0 in any order, NOT_RANKED for padding.
        relevant_counts: [..] int32 number of relevant documents; those missing in `ranks` count as
            not found.

    Returns:
        [..] values from 0 to 1; 0 where nothing is relevant.
    """
    kind, depth = metric_parts(name)
    ranks = tf.convert_to_tensor(ranks, tf.int32)
    counts = tf.convert_to_tensor(relevant_counts, tf.int32)
    found = ranks < (NOT_RANKED if depth is None else depth)
    place = tf.cast(ranks, tf.float32) + 1.0
    if kind == "mrr":
        best = tf.reduce_max(tf.where(found, 1.0 / place, 0.0), axis=-1)
        return tf.maximum(best, 0.0)  # -inf where [.., R] has no column
    if kind == "ndcg":
        best = ideal_dcg(depth or 0)
        gained = tf.reduce_sum(tf.where(found, np.log(2.0) / tf.math.log1p(place), 0.0), axis=-1)
        whole = tf.gather(best, tf.minimum(counts, len(best) - 1))
    elif kind == "recall":
        gained = tf.reduce_sum(tf.cast(found, tf.float32), axis=-1)
        whole = tf.cast(counts, tf.float32)
    else:
        at_or_before = ranks[..., tf.newaxis, :] <= ranks[..., :, tf.newaxis]
        relevant_so_far = tf.reduce_sum(tf.cast(at_or_before, tf.float32), axis=-1)
        gained = tf.reduce_sum(tf.where(found, relevant_so_far / place, 0.0), axis=-1)
        whole = tf.cast(counts, tf.float32)
    return tf.math.divide_no_nan(gained, whole)


def ideal_dcg(depth: int) -> np.ndarray:
    """[depth + 1] float32 the DCG at `depth` of 0, 1, 2 ... relevant documents ranked first."""
    gains = 1.0 / np.log2(np.arange(depth) + 2.0)
    return np.concatenate([[0.0], np.cumsum(gains)]).astype(np.float32)


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

    for found in ir_measures.iter_calc(measures, _binary(qrels), scored):
        values[names[str(found.measure)]][found.query_id] = float(found.value)
    return values


def report(qrels: Qrels, run: Run, metrics: Sequence[str] = METRICS) -> dict[str, float]:
    """Metric -> its mean over the queries with judgments; see `per_query`."""
    values = per_query(qrels, run, metrics)
    return {name: float(np.mean(list(found.values()))) for name, found in values.items()}


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
        query: {doc: -float(place) for place, (doc, _) in enumerate(found)}
        for query, found in run.items()
        if len(found)
    }


def _binary(qrels: Qrels) -> dict[str, dict[str, int]]:
    return {q: {doc: int(grade > 0) for doc, grade in docs.items()} for q, docs in qrels.items()}
