"""Rows of few numbers are reduced to the same with and without a reduction."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy import few_columns
from kytolly.policy.action_values import take_action
from kytolly.policy.words import PackedRows

FUNCTIONS = {
    "sum": lambda x: few_columns.row_sum(tf.square, x),
    "sum of another axis": lambda x: few_columns.row_sum(tf.multiply, x, 2.0 * x, axis=0),
    "largest": lambda x: few_columns.row_max(x, keepdims=True),
    "smallest": few_columns.row_min,
    "place": few_columns.row_argmax,
    "softmax": few_columns.log_softmax,
    "sums": lambda x: tf.stack(few_columns.sums(x, x * x)),
    "means": lambda x: tf.stack(few_columns.means(x[:, 0], x[:, 1])),
    "action": lambda x: take_action(x, tf.constant([1, 0, 1])),
    "action of distributions": lambda x: take_action(x[:, :, tf.newaxis], tf.constant([1, 0, 1])),
}


def result_and_gradient(function, x, device):
    with tf.device(device), tf.GradientTape() as tape:
        tape.watch(x)
        result = function(x)
        loss = tf.reduce_sum(tf.cast(result, tf.float32) ** 2)
    gradient = tape.gradient(loss, x, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return result, gradient


@pytest.mark.parametrize("columns", [2, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_column_by_column_gives_the_same(name, columns):
    rng = np.random.default_rng(1)
    x = tf.constant(rng.normal(size=(3, columns)) * 3.0, tf.float32)
    run = tf.function(result_and_gradient, autograph=False)
    for cpu, gpu in zip(
        run(FUNCTIONS[name], x, "/CPU:0"), run(FUNCTIONS[name], x, "/GPU:0"), strict=True
    ):
        assert gpu.dtype == cpu.dtype and gpu.shape == cpu.shape
        np.testing.assert_allclose(gpu, cpu, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["place", "softmax", "largest"])
def test_equal_and_huge_numbers_give_the_same(name):
    x = tf.constant([[1e30, 1e30, -1e30], [0.0, 0.0, 0.0], [-1e9, -1e9, 3.0]])
    run = tf.function(result_and_gradient, autograph=False)
    cpu, gpu = (run(FUNCTIONS[name], x, device)[0] for device in ("/CPU:0", "/GPU:0"))
    np.testing.assert_allclose(gpu, cpu, rtol=1e-6)


def test_many_columns_are_reduced_and_few_are_written_out():
    with tf.Graph().as_default() as graph, tf.device("/GPU:0"):
        few_columns.row_sum(tf.identity, tf.zeros([3, 8]))
        assert not [op for op in graph.get_operations() if op.type == "Sum"]
        few_columns.row_sum(tf.identity, tf.zeros([3, 9]))
        assert [op for op in graph.get_operations() if op.type == "Sum"]


def test_packed_rows_are_gathered_as_they_were():
    rows = {
        "image": tf.cast(tf.reshape(tf.range(24), [4, 2, 3]), tf.uint8),
        "number": tf.constant([0.5, np.nan, -0.0, 1e-40]),
        "flags": tf.constant([[True, False]] * 2 + [[False, True]] * 2),
        "count": tf.constant([-(2**31), 2**31 - 1, 0, 7]),
    }
    found = PackedRows(rows).gather(tf.constant([3, 1]))
    for name, column in rows.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], tf.gather(column, [3, 1]))
