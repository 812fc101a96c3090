"""Loops within a map over agents: those that end for all at once keep their length."""

import numpy as np
import tensorflow as tf

from kytolly.loop.mapped_loops import shared_loops_stay

ROWS = tf.constant([[1.0], [2.0], [5.0]])


def operations(function):
    """The types of all operations of a program and of the functions in it."""
    graphs = [function.graph.as_graph_def()]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for graph in graphs for f in graph.library.function for node in f.node_def]
    return {node.op for node in nodes}


def mapped(one):
    """A map over `ROWS` as a program."""

    def run():
        with shared_loops_stay():
            return tf.vectorized_map(one, ROWS, fallback_to_while_loop=False)

    return tf.function(run, autograph=False).get_concrete_function()


def test_nested_loops_that_end_for_all_at_once_have_neither_flag_nor_condition():
    def one(row):
        def outer(time, shared, own):  # `own` has no rows before the first turn
            inner = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x + row), (0, own))[1]
            return time + 1, shared + 1.0, inner * 2.0

        return tf.while_loop(lambda t, *_: t < 4, outer, (0, 0.0, tf.zeros([1])))[1:]

    program = mapped(one)
    shared, own = program()
    np.testing.assert_array_equal(shared, [4.0] * 3)
    expected = 0.0
    for _ in range(4):
        expected = (expected + 3 * ROWS) * 2.0
    np.testing.assert_array_equal(own, expected)
    assert not {"If", "StatelessIf"} & operations(program)
    assert {"While", "StatelessWhile"} & operations(program)


def test_a_loop_that_ends_earlier_for_some_ends_for_each_by_itself():
    def one(row):
        return tf.while_loop(lambda x: x[0] < 6.0, lambda x: (x * 2.0,), (row,))[0]

    np.testing.assert_array_equal(mapped(one)(), [[8.0], [8.0], [10.0]])


def test_tensorflows_own_loops_are_back_afterwards():
    def one(row):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x + row), (0, row))[1]

    mapped(one)
    run = tf.function(lambda: tf.vectorized_map(one, ROWS), autograph=False)
    assert {"If", "StatelessIf"} & operations(run.get_concrete_function())
