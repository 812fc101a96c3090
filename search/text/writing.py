"""The most probable next token, one after the other, in one compiled loop."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from kytolly.search.model.sequence_to_sequence import SequenceToSequence
from kytolly.search.text.vocabulary import BEGIN, END, PADDING, UNKNOWN

NEVER = -1e9  # in place of the log-probability of a token that may not come


def greedy_tokens(
    network: SequenceToSequence,
    source: tf.Tensor,
    length: int,
    distinct: bool,
    may_end: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Tokens that a `SequenceToSequence` writes, and what each is worth.

    Args:
        network: Of `search.model.sequence_to_sequence`.
        source: [B, S] int32 tokens.
        length: T, steps.
        distinct: Write words only, T of them, no one twice and none of the source; else every word
            may come again, and the end may, after which the tokens mean nothing.
        may_end: The end may come even so.

    Returns:
        [B, T] int32 tokens and [B, T] their log-probabilities, given source and tokens before.
    """
    memory, rows = network.encode(source), tf.shape(source)[0]
    size = network.vocabulary
    special = [PADDING, BEGIN, UNKNOWN, *([END] if distinct and not may_end else [])]
    banned = tf.reduce_max(tf.one_hot(special, size), axis=0)
    banned = tf.tile(banned[tf.newaxis], [rows, 1])
    if distinct:
        places = tf.stack([tf.zeros_like(source) + tf.range(rows)[:, tf.newaxis], source], axis=-1)
        banned = tf.tensor_scatter_nd_max(banned, places, tf.ones(tf.shape(source)))

    def write(
        at: tf.Tensor,
        token: tf.Tensor,
        states: Sequence[Sequence[tf.Tensor]],
        banned: tf.Tensor,
        tokens: tf.Tensor,
        scores: tf.Tensor,
    ) -> tuple:
        logits, states = network.step(token, states, memory)
        likely = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        token = tf.argmax(likely + NEVER * banned, axis=-1, output_type=tf.int32)
        here = tf.range(length) == at
        score = tf.gather(likely, token, batch_dims=1)
        tokens = tf.where(here, token[:, tf.newaxis], tokens)
        scores = tf.where(here, score[:, tf.newaxis], scores)
        if distinct:
            banned = tf.maximum(banned, tf.one_hot(token, size))
        return at + 1, token, states, banned, tokens, scores

    begin, tokens = tf.fill([rows], BEGIN), tf.zeros([rows, length], tf.int32)
    start = (tf.constant(0), begin, memory.states, banned, tokens, tf.zeros([rows, length]))
    *_, tokens, scores = tf.while_loop(lambda at, *_: at < length, write, start)
    return tokens, scores


def written_tokens(
    network: SequenceToSequence,
    source: tf.Tensor,
    length: int,
    distinct: bool,
    may_end: bool = False,
) -> tf.Tensor:
    """[B, T, 2] float32: what `greedy_tokens` gives, side by side."""
    tokens, scores = greedy_tokens(network, source, length, distinct, may_end)
    return tf.stack([tf.cast(tokens, tf.float32), scores], axis=-1)
