"""Random numbers as a function of a key and a counter.

TensorFlow's stateless draws differ between eager and compiled code, and cost 20 microseconds for
128 numbers inside a loop on a CPU. Threefry in plain integer arithmetic gives the same numbers
everywhere and fuses into the program around it.
"""

from __future__ import annotations

import tensorflow as tf

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry2x32(
    key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Two words of 32 random bits for every pair of counters, 20 rounds.

    Args:
        key: two uint32 tensors that broadcast with the counters.
        counter: two uint32 tensors [N].

    Returns:
        Two uint32 tensors [N].

    Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 3.3.
    """
    key0, key1 = key
    words = (key0, key1, key0 ^ key1 ^ tf.constant(PARITY, tf.uint32))
    x, y = counter[0] + words[0], counter[1] + words[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x += y
            y = x ^ rotate_left(y, rotation)
        x += words[(group + 1) % 3]
        y += words[(group + 2) % 3] + tf.constant(group + 1, tf.uint32)
    return x, y


def rotate_left(x: tf.Tensor, bits: int) -> tf.Tensor:
    """[N] uint32 with its bits rotated to the left."""
    left = tf.bitwise.left_shift(x, tf.constant(bits, tf.uint32))
    return left | tf.bitwise.right_shift(x, tf.constant(32 - bits, tf.uint32))


def uniforms(bits: tf.Tensor) -> tf.Tensor:
    """Float32 in [0, 1), in steps of 2**-24, from uint32 bits of the same shape."""
    high = tf.bitcast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.int32)
    return tf.cast(high, tf.float32) * (1.0 / (1 << 24))


def whole_numbers(bits: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Int32 in [0, limit) from uint32 bits of the same shape; `limit` is a positive int scalar.

    Source: Lemire 2019, arXiv:1805.10941, without its rejection step: a number's probability is
    off by at most 2**-32.
    """
    product = tf.cast(bits, tf.uint64) * tf.cast(limit, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(product, tf.constant(32, tf.uint64)), tf.int32)


class RandomStream(tf.Module):
    """The one source of random bits of an agent: a key, and a counter that only rises.

    Args:
        seed: Whole number; streams of different seeds are independent.
        purpose: Whole number that separates the streams of one seed.
    """

    def __init__(self, seed: int, purpose: int = 0):
        super().__init__(name="random_stream")
        self.key = tf.Variable([seed, purpose], dtype=tf.int64, trainable=False, name="key")
        self.counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="counter")

    def bits(self, count: int) -> tf.Tensor:
        """[count] uint32, never drawn before. `count` is known when the program is traced."""
        pairs = (count + 1) // 2
        position = self.counter + tf.range(pairs, dtype=tf.int64)
        self.counter.assign_add(pairs)
        low = tf.cast(position, tf.uint32)
        high = tf.cast(tf.bitwise.right_shift(position, tf.constant(32, tf.int64)), tf.uint32)
        key = tf.cast(self.key, tf.uint32)
        return tf.concat(threefry2x32((key[0], key[1]), (low, high)), axis=0)[:count]
