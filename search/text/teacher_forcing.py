"""Inputs and right tokens of a decoder that learns from targets."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from kytolly.search.text.vocabulary import BEGIN, PADDING


def decoder_inputs(target: tf.Tensor) -> tf.Tensor:
    """[B, T] the token before each token of the targets [B, T]: a begin, then all but the last."""
    begin = tf.fill([tf.shape(target)[0], 1], BEGIN)
    return tf.concat([begin, target[:, :-1]], axis=1)


def sampled_inputs(
    target: tf.Tensor,
    hidden: tf.Tensor,
    guessed: tf.Tensor,
    most: int,
    logits: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """`decoder_inputs` in which guesses stand for some tokens; padding stays.

    Args:
        target: [B, T] int32 tokens.
        hidden: [B, T, D] what the logits of a decoder that was given the targets are made of.
        guessed: [B, T] true where the most probable token stands for the target's.
        most: Places that get a guess; where `own` has more, the last ones keep the target's token.
        logits: Function from [most, D] to [most, V]. For all places, where few need a guess, it
            would cost as much as all else of a decoder.
    """
    tokens, rows = tf.reshape(target, [-1]), tf.reshape(hidden, [-1, hidden.shape[-1]])
    wanted = tf.reshape(guessed, [-1]) & (tokens != PADDING)
    needed, places = tf.math.top_k(tf.cast(wanted, tf.int32), most)
    needed = tf.cast(needed, tf.bool)
    guesses = most_probable(logits(tf.gather(rows, places)))
    tokens = tf.tensor_scatter_nd_update(
        tokens,
        places[:, tf.newaxis],
        tf.where(needed, guesses, tf.gather(tokens, places)),
    )
    return decoder_inputs(tf.reshape(tokens, tf.shape(target)))


def most_draws(count: int, share: float) -> int:
    """Most of `count` draws that hit a share, but for a chance of one in a hundred million."""
    deviation = math.sqrt(count * share * (1.0 - share))
    return min(count, math.ceil(count * share + 6.0 * deviation))


def right_tokens(logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """[B, 2] float32: tokens of each target that are the most probable ones, and all of them."""
    present = target != PADDING
    right = present & (most_probable(logits) == target)
    return tf.reduce_sum(tf.cast(tf.stack([right, present], axis=-1), tf.float32), axis=1)


def most_probable(logits: tf.Tensor) -> tf.Tensor:
    """[...] int32 number of the largest of [..., V]; the first one of several.

    XLA took `tf.argmax` 2.4 times as long on a CPU (7.5 against 3.2 ms for 704 x 6,000).
    """
    largest = logits == tf.reduce_max(logits, axis=-1, keepdims=True)
    size = int(logits.shape[-1] or 0)
    return tf.reduce_min(tf.where(largest, tf.range(size), size - 1), axis=-1)
