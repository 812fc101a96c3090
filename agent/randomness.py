"""Random numbers as a function of a key and a counter.

TensorFlow's stateless draws differ between eager and compiled code, and cost 20 microseconds for
128 numbers inside a loop on a CPU. Threefry in plain integer arithmetic gives the same numbers
everywhere and fuses into the program around it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

EVALUATION, FINAL_EVALUATION, RESUMED_EPISODES = 5, 6, 7  # purposes of `stream_seed`
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA

Words = tuple[tf.Tensor, tf.Tensor]


def threefry2x32(key: Words, counter: Words) -> Words:
    """Two uint32 tensors [N] of random bits, in 20 rounds.

    Args:
        key: two uint32 tensors that broadcast with the counters.
        counter: two uint32 tensors [N].

    Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 3.3.
    """
    words = (*key, key[0] ^ key[1] ^ tf.constant(PARITY, tf.uint32))
    x, y = counter[0] + words[0], counter[1] + words[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x += y
            left = tf.bitwise.left_shift(y, tf.constant(rotation, tf.uint32))
            y = x ^ (left | shift_right(y, 32 - rotation))
        x += words[(group + 1) % 3]
        y += words[(group + 2) % 3] + tf.constant(group + 1, tf.uint32)
    return x, y


def shift_right(x: tf.Tensor, bits: int) -> tf.Tensor:
    """Whole numbers of any type without their lowest bits."""
    return tf.bitwise.right_shift(x, tf.constant(bits, x.dtype))


def uniform(random_bits: tf.Tensor) -> tf.Tensor:
    """Float32 in [0, 1), in steps of 2**-24, from uint32 random bits of the same shape."""
    high = tf.cast(shift_right(random_bits, 8), tf.int32)
    return tf.cast(high, tf.float32) * (1.0 / (1 << 24))


def randint(random_bits: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Int32 in [0, limit) from uint32 bits of the same shape; `limit` is a positive int scalar.

    Source: Lemire 2019, arXiv:1805.10941, without its rejection step: a number's probability is
    off by at most 2**-32.
    """
    product = tf.cast(random_bits, tf.uint64) * tf.cast(limit, tf.uint64)
    return tf.cast(shift_right(product, 32), tf.int32)


def stream_seed(seed: int, purpose: int, number: int = 0) -> int:
    """A 32-bit seed that resembles that of no other seed, purpose or number; `purpose` is not 0.

    `seed + number` would be a seed of the neighboring run, too.
    """
    return int(np.random.SeedSequence([seed, purpose, number]).generate_state(1)[0])


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

    def random_bits(self, count: int) -> tf.Tensor:
        """[count] uint32, never drawn before. `count` is known when the program is traced."""
        pairs = (count + 1) // 2
        position = self.counter + tf.range(pairs, dtype=tf.int64)
        self.counter.assign_add(pairs)
        low, high = (tf.cast(part, tf.uint32) for part in (position, shift_right(position, 32)))
        key = tf.unstack(tf.cast(self.key, tf.uint32))
        return tf.concat(threefry2x32((key[0], key[1]), (low, high)), axis=0)[:count]

    def uniform(self, rows: int, count: int) -> tf.Tensor:
        """[rows, count] float32 in [0, 1), never drawn before."""
        return tf.reshape(uniform(self.random_bits(rows * count)), [rows, count])
