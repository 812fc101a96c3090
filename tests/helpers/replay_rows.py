"""Rows of a replay memory that tell where they come from, and what a program does with them."""

import re

import numpy as np
import tensorflow as tf

from kytolly.policy.batch import Transition

SPEC = tf.TensorSpec([2], tf.float32)


def rows(times, copies=1, gamma=0.5):
    """Rows that tell their time and copy: obs = (time, copy), reward = time."""
    stamp = np.array([[t, e] for t in times for e in range(copies)], np.float32)
    count = len(stamp)
    return Transition(
        tf.constant(stamp),
        tf.constant(stamp[:, 1].astype(np.int32)),
        tf.constant(stamp[:, 0]),
        tf.fill([count], gamma),
        tf.constant(stamp + [1, 0]),
    )


def none_last(batch):
    return tf.zeros_like(batch.reward, tf.bool)


def ops_of_size(program, rows):
    """Kinds of operations in a compiled program whose result has so many rows."""
    text = program.experimental_get_compiler_ir()(stage="optimized_hlo")
    return set(re.findall(rf"= [a-z0-9]+\[{rows}[,\]]\S* ([a-z-]+)\(", text))
