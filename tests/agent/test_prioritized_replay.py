"""Priorities: which rows are drawn, how often, and with which weights."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.prioritized_replay import PrioritizedReplay, importance_weights
from kytolly.agent.priority_tree import PriorityTree, child_at
from kytolly.agent.randomness import RandomStream
from tests.helpers.replay_rows import SPEC, none_last, ops_of_size, rows


def shares(count):
    return tf.constant((np.arange(count) + 0.5) / count)


@pytest.mark.parametrize("capacity, width", [(1, 2), (7, 2), (1_000, 8), (5_000, 8), (600, 25)])
def test_each_slot_is_drawn_in_proportion_to_its_number(capacity, width):
    tree = PriorityTree(capacity, width)
    numbers = np.arange(capacity, dtype=np.float32) % 5
    numbers[-1] = 3.0
    half = capacity // 2  # set in two parts, and some numbers twice
    tree.set(tf.range(capacity), tf.constant(numbers * 2 + 1))
    tree.set(tf.range(half), tf.constant(numbers[:half]))
    tree.set(tf.range(half, capacity), tf.constant(numbers[half:]))
    for level, above in zip(tree.levels, tree.levels[1:], strict=False):
        np.testing.assert_array_equal(
            level.numpy().sum(-1), above.numpy().ravel()[: level.shape[0]]
        )
    draws = 40 * int(numbers.sum())  # even shares: each slot is drawn 40 times its number
    slots, found = tree.draw(shares(draws))
    np.testing.assert_allclose(np.bincount(slots, minlength=capacity), 40 * numbers, atol=1)
    np.testing.assert_array_equal(found, numbers[slots])
    np.testing.assert_array_equal(tree.numbers(slots), numbers[slots])


def test_column_by_column_the_same_children_are_drawn():
    numbers = tf.constant([[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 5.0, 0.0], [1.0, 0.0, 0.0, 3.0]])
    rest = tf.constant([2.0, 4.9, 0.999], tf.float64)
    late = tf.constant([3.0, 5.0, 4.5], tf.float64)  # rounding may leave it beyond the sum
    for place in (rest, late, 0.0 * rest):
        cpu = tf.function(child_at, autograph=False)(numbers, place)
        with tf.device("/GPU:0"):
            gpu = tf.function(child_at, autograph=False)(numbers, place)
        for one, other in zip(cpu, gpu, strict=True):
            np.testing.assert_allclose(one, other)
        assert list(cpu[0].numpy()) != [0, 0, 0]


def test_ten_million_rows_are_told_apart():
    tree = PriorityTree(10_000_000)
    tree.fill(tf.ones([10_000_000]))
    slots, _ = tree.draw(tf.constant((np.arange(5_000_000, 5_000_512) + 0.5) / 1e7))
    np.testing.assert_allclose(slots, np.arange(5_000_000, 5_000_512), atol=2)
    assert len(np.unique(slots)) > 500


def test_rounding_never_finds_a_child_of_zero():
    numbers = tf.constant([[0.0, 1.0, 0.0, 2.0, 0.0]] * 4)
    child, number, rest = child_at(numbers, tf.constant([0.0, 1.0, 2.9, 3.1], tf.float64))
    # At 1 begins the next; 3.1 lies beyond the sum, where the last one above 0 is taken.
    np.testing.assert_array_equal(child, [1, 3, 3, 3])
    np.testing.assert_array_equal(number, [1, 2, 2, 2])
    np.testing.assert_allclose(rest, [0.0, 0.0, 1.9, 2.1])


def test_importance_weights_by_hand():
    # Probabilities 1/2, 1/4, 1/4 of 3 rows: (3 P)^-0.5 = 0.816, 1.155, 1.155; over the largest.
    weight = importance_weights(tf.constant([2.0, 1.0, 1.0]), tf.constant(0.5))
    np.testing.assert_allclose(weight, [0.7071068, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(importance_weights(tf.constant([2.0, 1.0]), 1.0), [0.5, 1.0])
    np.testing.assert_allclose(importance_weights(tf.constant([2.0, 1.0]), 0.0), [1.0, 1.0])


def make_replay(capacity, **more):
    return PrioritizedReplay(capacity, SPEC, **{"exponent": 1.0, "correction": 0.0, **more})


def add(buffer, times):
    for time in times:
        batch = rows([time], copies=buffer.stride)
        buffer.add(batch, none_last(batch))


def drawn(buffer, count, seed=0):
    return buffer.sample(RandomStream(seed).random_bits(count))


@pytest.mark.parametrize("capacity", [11, 12, 40])
def test_only_complete_windows_are_drawn_also_across_the_border(capacity):
    buffer = make_replay(capacity, stride=2, n_step=3)
    for time in range(12):
        add(buffer, [time])
        if time < 2:
            assert not buffer.tree.levels[0].numpy().any()
            continue
        found = drawn(buffer, 400)
        start, copy = found.obs[:, 0].numpy(), found.obs[:, 1].numpy()
        kept = -(-capacity // 2)  # times of which a row is there
        assert set(start) == set(range(max(0, time + 1 - kept), time - 1)) and set(copy) == {0, 1}
        np.testing.assert_allclose(found.reward, start + 0.5 * (start + 1) + 0.25 * (start + 2))
        np.testing.assert_allclose(found.next_obs[:, 0], start + 3)


def test_a_whole_ring_at_once_leaves_the_newest_windows_out():
    buffer = make_replay(10, n_step=3)
    batch = rows(range(10))
    buffer.add(batch, none_last(batch))
    assert set(drawn(buffer, 200).obs[:, 0].numpy()) == set(range(8))
    buffer.add(batch, none_last(batch))
    assert set(drawn(buffer, 200).slot.numpy()) == set(range(8))


def test_errors_become_priorities_and_new_rows_get_the_highest():
    buffer = make_replay(8, exponent=0.5)
    add(buffer, range(4))
    np.testing.assert_allclose(buffer.tree.numbers(tf.range(4)), 1.0)
    batch = drawn(buffer, 4)
    np.testing.assert_array_equal(batch.slot, [0, 1, 2, 3])  # a row of each part of the sum
    buffer.close(batch, tf.constant([-9.0, 0.25, 0.0, np.nan]))
    # |error| + 1e-6 to the power 0.5; what is no number leaves the priority as it was.
    np.testing.assert_allclose(buffer.tree.numbers(tf.range(4)), [3.0, 0.5, 1e-3, 1.0], rtol=1e-4)
    add(buffer, [4])
    np.testing.assert_allclose(buffer.tree.numbers(tf.constant([4, 5])), [3.0, 0.0], rtol=1e-4)
    assert float(buffer.highest) == pytest.approx(3.0, rel=1e-4) and int(buffer.ignored) == 1


def test_an_infinite_error_is_ignored_and_a_huge_one_keeps_the_sum_finite():
    buffer = make_replay(4)
    add(buffer, range(4))
    buffer.close(drawn(buffer, 4), tf.constant([np.inf, -np.inf, 3e38, 3e38]))
    found = drawn(buffer, 100)
    assert int(buffer.ignored) == 2 and set(found.slot.numpy()) == {2, 3}
    assert np.isfinite(found.weight).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_rows_are_drawn_by_their_priorities_chi_square(compiled):
    from scipy.stats import chisquare

    rng = np.random.default_rng(3)
    buffer = make_replay(1_200, stride=4, n_step=2, exponent=0.7)
    batch = rows(range(250), copies=4)
    buffer.add(batch, none_last(batch))
    error = rng.gamma(0.7, size=996).astype(np.float32)
    buffer.close(drawn(buffer, 996)._replace(slot=tf.range(996)), tf.constant(error))
    stream = RandomStream(1)
    draw = tf.function(lambda: buffer.sample(stream.random_bits(4_000)).slot, jit_compile=compiled)
    counts = sum(np.bincount(draw(), minlength=1_200) for _ in range(50))
    assert counts[996:].sum() == 0
    error = error.astype(np.float64)
    probability = (error + 1e-6) ** 0.7 / ((error + 1e-6) ** 0.7).sum()
    likely = probability > 5e-5  # at least 10 draws expected
    expected = 200_000 * probability
    rest = [counts[:996][~likely].sum()], [expected[~likely].sum()]
    # One draw of each part of the sum: counts vary less than independent ones, never more.
    found = np.append(counts[:996][likely], rest[0]), np.append(expected[likely], rest[1])
    assert chisquare(found[0], found[1] * found[0].sum() / found[1].sum()).pvalue > 0.01
    assert chisquare(found[0], np.full(len(found[0]), found[0].mean())).pvalue < 1e-6


def test_the_exponent_of_the_weights_rises_to_one():
    buffer = make_replay(8, correction=0.4, total_rows=10)
    values = []
    for time in range(12):
        add(buffer, [time])
        values.append(float(buffer.importance_exponent()))
    np.testing.assert_allclose(values, np.minimum(0.4 + 0.06 * np.arange(1, 13), 1.0), rtol=1e-6)


def test_adding_drawing_and_closing_do_not_copy_the_memory():
    buffer, stream, batch = make_replay(20_011), RandomStream(0), rows(range(16))

    def once(done, total):
        buffer.add(batch, none_last(batch))
        found = buffer.sample(stream.random_bits(32))
        buffer.close(found, found.reward)
        return done + 1, total + found.reward[0]

    def work():
        return tf.while_loop(lambda done, _: done < 300, once, (0, 0.0))[1]

    program = tf.function(work, jit_compile=True, autograph=False)
    writes = {"parameter", "get-tuple-element", "scatter", "fusion"}
    assert {"scatter"} < ops_of_size(program, 20_011) <= writes  # which ones, is the compiler's
    assert ops_of_size(program, 2_502) <= writes  # the leaves, 8 in a row
