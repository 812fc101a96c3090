"""Metrics from the ranks of relevant documents, as rewards.

A metric does not need the ranking, only the ranks of the few relevant documents, and a rank is a
count of larger scores. That is tensor code without a sort, which compiles.

Relevance is binary. Sources: Järvelin & Kekäläinen 2002 (nDCG, here with binary gains and the
discount 1 / log2(rank + 1), ranks from 1, as trec_eval's ndcg_cut); Voorhees & Harman 2005, "TREC"
(average precision, recall, reciprocal rank).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from kytolly.search.index.metrics import metric_parts

NOT_RANKED = 2**30  # the rank of padding: below every cutoff


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
    score = tf.gather(scores, tf.maximum(relevant, 0), axis=-1, batch_dims=axes - 1)
    score, all_scores = score[..., tf.newaxis], scores[..., tf.newaxis, :]
    position = tf.range(tf.shape(scores)[-1])
    before = position < relevant[..., tf.newaxis]
    ahead = (all_scores > score) | ((all_scores == score) & before)
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
    counted = ranks < (NOT_RANKED if depth is None else depth)
    position = tf.cast(ranks, tf.float32) + 1.0
    if kind == "mrr":
        best = tf.reduce_max(tf.where(counted, 1.0 / position, 0.0), axis=-1)
        return tf.maximum(best, 0.0)  # -inf where [.., R] has no column
    if kind == "ndcg":
        best = ideal_dcg(depth or 0)
        gained = tf.reduce_sum(
            tf.where(counted, np.log(2.0) / tf.math.log1p(position), 0.0), axis=-1
        )
        whole = tf.gather(best, tf.minimum(counts, len(best) - 1))
    elif kind == "recall":
        gained = tf.reduce_sum(tf.cast(counted, tf.float32), axis=-1)
        whole = tf.cast(counts, tf.float32)
    else:
        at_or_before = ranks[..., tf.newaxis, :] <= ranks[..., :, tf.newaxis]
        relevant_so_far = tf.reduce_sum(tf.cast(at_or_before, tf.float32), axis=-1)
        gained = tf.reduce_sum(tf.where(counted, relevant_so_far / position, 0.0), axis=-1)
        whole = tf.cast(counts, tf.float32)
    return tf.math.divide_no_nan(gained, whole)


def metric_on_host(name: str, ranks: np.ndarray, relevant_counts: np.ndarray) -> np.ndarray:
    """`metric` of arrays, computed on the CPU.

    Threads that call `metric` on a GPU, op by op, get sums over the wrong axis now and then
    (TensorFlow 2.21).
    """
    with tf.device("/CPU:0"):
        return metric(name, ranks, relevant_counts).numpy()


def ideal_dcg(depth: int) -> np.ndarray:
    """[depth + 1] float32 the DCG at `depth` of 0, 1, 2 ... relevant documents ranked first."""
    gains = 1.0 / np.log2(np.arange(depth) + 2.0)
    return np.concatenate([[0.0], np.cumsum(gains)]).astype(np.float32)
