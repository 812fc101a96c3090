import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import RandomStream, randint, threefry2x32, uniform


def words(*values):
    return tuple(tf.constant([value], tf.uint32) for value in values)


def test_threefry_gives_the_known_answers_of_its_authors():
    """Random123 1.14, tests/kat_vectors, "threefry2x32 20"."""
    ones = 0xFFFFFFFF
    cases = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ones, ones), (ones, ones), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]
    for key, counter, expected in cases:
        found = threefry2x32(words(*key), words(*counter))
        assert tuple(int(word[0]) for word in found) == expected


def test_draws_are_the_same_eager_and_compiled_and_never_repeat():
    eager, compiled = RandomStream(3), RandomStream(3)
    draw = tf.function(lambda: compiled.random_bits(5), jit_compile=True, autograph=False)
    first = eager.random_bits(5)
    np.testing.assert_array_equal(first, draw())
    second = eager.random_bits(5)
    np.testing.assert_array_equal(second, draw())
    assert not set(first.numpy()) & set(second.numpy())


def test_seeds_and_purposes_give_different_streams():
    draws = [
        RandomStream(s, p).random_bits(4).numpy().tolist() for s, p in ((0, 0), (1, 0), (0, 1))
    ]
    assert len({tuple(draw) for draw in draws}) == 3


def test_the_counter_goes_on_beyond_32_bits():
    stream = RandomStream(0)
    low = stream.random_bits(2).numpy()
    stream.counter.assign(2**32)
    assert not np.array_equal(low, stream.random_bits(2).numpy())


def test_uniforms_fill_the_unit_interval_and_exclude_one():
    ends = uniform(tf.constant([0, 2**32 - 1], tf.uint32)).numpy()
    assert ends[0] == 0.0 and 0.9999999 < ends[1] < 1.0
    many = uniform(RandomStream(1).random_bits(100_000)).numpy()
    assert abs(many.mean() - 0.5) < 0.004 and abs(many.var() - 1 / 12) < 0.001


def test_whole_numbers_are_spread_evenly_below_the_limit():
    numbers = randint(RandomStream(2).random_bits(70_000), tf.constant(7)).numpy()
    counts = np.bincount(numbers, minlength=7)
    assert len(counts) == 7 and abs(counts - 10_000).max() < 400
    assert int(randint(tf.constant([2**32 - 1], tf.uint32), 10_000_000)[0]) == 9_999_999
