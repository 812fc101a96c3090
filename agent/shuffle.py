"""Random orders without a sort."""

from __future__ import annotations

import math

import tensorflow as tf

from kytolly.agent.randomness import threefry2x32

FEW = 64  # rows
ROUNDS = 4  # as many make a random permutation of round functions that are random themselves


def keys_per_order() -> int:
    """Random words that one order takes."""
    return 2 * ROUNDS


def random_order(index: tf.Tensor, count: int, keys: tf.Tensor) -> tf.Tensor:
    """The place to which a random permutation of 0 to count - 1 sends each index.

    An index is a pair of digits (left, right) in a grid of about sqrt(count) places a side. Each
    round adds a hash of the one digit to the other, which can be undone, so no two indices meet:
    a Feistel network, in integer arithmetic on each index alone. Where the grid is larger than
    `count`, indices that land beyond it are sent on until they come back (cycle walking). Hashes
    of few digits miss many orders: of fewer than `FEW`, each index gets the rank of a random word.

    Args:
        index: [B] int32 in [0, count).
        count: Length of the permutation, known when the program is traced.
        keys: [keys_per_order()] uint32 random words: the permutation.

    Returns:
        [B] int32, all different where the indices are.

    Source: Luby & Rackoff 1988, doi:10.1137/0217022; Black & Rogaway 2002, "Ciphers with Arbitrary
    Finite Domains", for other sizes than powers of two.
    """
    if count < FEW:
        return _ranks_of_words(index, count, keys)
    rows, columns = grid(count)
    sent = _feistel(tf.cast(index, tf.uint32), rows, columns, keys)
    if rows * columns > count:
        limit = tf.constant(count, tf.uint32)
        sent = tf.while_loop(
            lambda sent: tf.reduce_any(sent >= limit),
            lambda sent: (tf.where(sent >= limit, _feistel(sent, rows, columns, keys), sent),),
            (sent,),
        )[0]
    return tf.cast(sent, tf.int32)


def grid(count: int) -> tuple[int, int]:
    """Sides of a grid of at least `count` places, both near its square root.

    Exactly `count` places where it has two divisors that near; else a few more.
    """
    root = math.isqrt(count)
    for rows in range(root, max(1, root // 2) - 1, -1):
        if count % rows == 0 and count // rows <= 4 * rows:
            return rows, count // rows
    side = root if root * root == count else root + 1
    return side, side


def _ranks_of_words(index: tf.Tensor, count: int, keys: tf.Tensor) -> tf.Tensor:
    """[B] int32 ranks among `count` random words, one for each index; equal words by index."""
    every = tf.range(count)
    words, _ = threefry2x32((keys[0], keys[1]), (tf.cast(every, tf.uint32), keys[2]))
    word, index = tf.gather(words, index)[:, tf.newaxis], index[:, tf.newaxis]
    before = (words < word) | ((words == word) & (every < index))
    return tf.reduce_sum(tf.cast(before, tf.int32), axis=-1)


def _feistel(index: tf.Tensor, rows: int, columns: int, keys: tf.Tensor) -> tf.Tensor:
    left, right = index // columns, index % columns
    for turn in range(ROUNDS):
        left = _wrap(left + _below(rows, _hash(right, keys[2 * turn])), rows)
        right = _wrap(right + _below(columns, _hash(left, keys[2 * turn + 1])), columns)
    return left * columns + right


def _wrap(x: tf.Tensor, limit: int) -> tf.Tensor:
    """`x` modulo `limit`, for x below twice the limit."""
    return tf.where(x >= limit, x - limit, x)


def _hash(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """uint32 in which every bit depends on every bit of `x` and of the key.

    Source: the finalizer of MurmurHash3, Appleby 2011.
    """
    x = (x + key) ^ tf.bitwise.right_shift(key, tf.constant(15, tf.uint32))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32))) * tf.constant(
            factor, tf.uint32
        )
    return x ^ tf.bitwise.right_shift(x, tf.constant(16, tf.uint32))


def _below(limit: int, bits: tf.Tensor) -> tf.Tensor:
    """uint32 in [0, limit) from the upper 16 bits; `limit` is at most 2**16."""
    high = tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))
    return tf.bitwise.right_shift(high * tf.constant(limit, tf.uint32), tf.constant(16, tf.uint32))
