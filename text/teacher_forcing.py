"""What a decoder is given and what it is asked for, when it learns from targets."""

from __future__ import annotations

import tensorflow as tf

from kytolly.text.vocabulary import BEGIN, PADDING


def decoder_inputs(target: tf.Tensor) -> tf.Tensor:
    """[B, T] the token before each token of the targets [B, T]: a begin, then all but the last."""
    begin = tf.fill([tf.shape(target)[0], 1], BEGIN)
    return tf.concat([begin, target[:, :-1]], axis=1)


def sampled_inputs(target: tf.Tensor, guesses: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    """`decoder_inputs` in which the guesses stand for some tokens; padding stays.

    Args:
        target: [B, T] int32 tokens.
        guesses: [B, T, V] logits of a decoder that was given the targets.
        own: [B, T] true where the most probable token stands for the target's.
    """
    likely = tf.argmax(guesses, axis=-1, output_type=tf.int32)
    return decoder_inputs(tf.where(own & (target != PADDING), likely, target))


def right_tokens(logits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """[B, 2] float32: tokens of each target that are the most probable ones, and all of them."""
    present = target != PADDING
    right = present & (tf.argmax(logits, axis=-1, output_type=tf.int32) == target)
    return tf.reduce_sum(tf.cast(tf.stack([right, present], axis=-1), tf.float32), axis=1)
