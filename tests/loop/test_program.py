"""A program that XLA refuses runs without it; any other error is the caller's."""

import warnings

import pytest
import tensorflow as tf

from kytolly.loop.program import Program

SPEC = [tf.TensorSpec([2])]


def python_inside(x):
    return tf.ensure_shape(tf.numpy_function(lambda v: v + 1, [x], tf.float32), [2])


def out_of_range(x):
    return tf.gather(x, tf.cast(x[0], tf.int32))


def test_what_xla_refuses_runs_without_it_after_one_warning():
    program = Program(python_inside, SPEC, xla=True)
    with pytest.warns(UserWarning, match="XLA cannot compile python_inside: .* Set xla=False"):
        assert program(tf.zeros([2])).numpy().tolist() == [1.0, 1.0]
    assert not program.xla
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert program(tf.ones([2])).numpy().tolist() == [2.0, 2.0]


def test_other_errors_are_raised():
    program = Program(out_of_range, SPEC, xla=False)
    with pytest.raises(tf.errors.InvalidArgumentError):
        program(tf.constant([3.0, 0.0]))
