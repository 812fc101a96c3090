import collections
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from kytolly.agent.randomness import RandomStream
from kytolly.agent.shuffle import keys_per_order, random_order


def keys(number):
    return RandomStream(number).random_bits(keys_per_order())


def order(count, number=0):
    return random_order(tf.range(count), count, keys(number)).numpy()


COUNTS = [*range(1, 71), 97, 512, 1021, 2 * 97, 6144, 10_007, 32_768]


@pytest.mark.parametrize("counts", np.array_split(COUNTS, 4), ids=lambda c: f"{c[0]} to {c[-1]}")
def test_every_index_is_sent_to_a_place_of_its_own(counts):
    for count in counts:
        found = order(int(count), number=int(count))
        assert found.dtype == np.int32 and np.array_equal(np.sort(found), np.arange(count)), count


def test_compiled_orders_are_the_eager_ones():
    for count in (12, 13, 512):
        compiled = tf.function(
            lambda keys, n=count: random_order(tf.range(n), n, keys),
            jit_compile=True,
            autograph=False,
        )
        np.testing.assert_array_equal(compiled(keys(1)), order(count, 1))


def test_a_part_of_the_indices_is_sent_where_all_of_them_are():
    whole = order(100, 5)  # 100 is a square; 101 needs a larger grid
    np.testing.assert_array_equal(random_order(tf.range(40, 60), 100, keys(5)), whole[40:60])
    np.testing.assert_array_equal(
        random_order(tf.range(40, 60), 101, keys(5)), order(101, 5)[40:60]
    )


def test_other_keys_give_other_orders():
    orders = {tuple(order(48, number)) for number in range(60)}
    assert len(orders) == 60
    word = keys(0).numpy()
    for place in range(keys_per_order()):  # every word counts
        changed = word.copy()
        changed[place] ^= 1
        assert not np.array_equal(
            random_order(tf.range(512), 512, tf.constant(changed)), order(512)
        )


def orders_of(count, number):
    """[number, count] orders, each with keys of its own."""
    bits = tf.reshape(RandomStream(9).random_bits(number * keys_per_order()), [number, -1])

    @tf.function(jit_compile=True, autograph=False)
    def send(bits):
        one = tf.TensorSpec([count], tf.int32)
        return tf.map_fn(
            lambda keys: random_order(tf.range(count), count, keys), bits, fn_output_signature=one
        )

    return send(bits).numpy()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_orders_of_few_rows_are_equally_likely(count):
    seen = collections.Counter(map(tuple, orders_of(count, 12_000).tolist()))
    assert len(seen) == math.factorial(count)
    assert scipy.stats.chisquare(list(seen.values())).pvalue > 1e-4


@pytest.mark.parametrize("count", [6, 7, 16, 60, 63, 64])
def test_every_index_is_sent_everywhere_equally_often(count):
    sent = orders_of(count, 3_000)
    for index in (0, count // 2, count - 1):
        counts = np.bincount(sent[:, index], minlength=count)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4, index


@pytest.mark.parametrize("count", [512, 6_144, 10_007])
def test_neighbours_are_sent_apart(count):
    mean_correlation = []
    for number in range(20):
        found = order(count, number).astype(float)
        mean_correlation.append(np.corrcoef(found[:-1], found[1:])[0, 1])
        # of a random order about one pair stays together, in either direction two
        assert (np.abs(np.diff(found)) == 1).sum() < 12
        assert abs(np.corrcoef(np.arange(count), found)[0, 1]) < 5 / np.sqrt(count)
    assert abs(np.mean(mean_correlation)) < 4 / np.sqrt(20 * count)
