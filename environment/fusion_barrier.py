"""What is computed otherwise on a CPU than on a GPU: barriers that XLA's fusion does not pass."""

from __future__ import annotations

from typing import TypeVar

import tensorflow as tf

Nest = TypeVar("Nest")


def on_gpu() -> bool:
    """True while a program for a GPU is traced.

    There the host waits for the device at each condition and at each loop of unknown length.
    """
    return "GPU" in tf.constant(0).device


def fusion_barrier(nest: Nest, always: tf.Tensor) -> Nest:
    """The same nest of tensors, which a compiled program computes here once.

    XLA's fusion on a CPU computes an intermediate result again in every use of it, which multiplies
    along a chain of steps. It does not look into the branches of a condition. On a GPU it is no
    barrier.

    Args:
        nest: Of tensors.
        always: [] bool that is always true, and that XLA cannot know to be.
    """
    if on_gpu():
        return nest
    return tf.cond(always, lambda: nest, lambda: tf.nest.map_structure(tf.zeros_like, nest))


def loop_fusion_barrier(nest: Nest, always: tf.Tensor) -> Nest:
    """`fusion_barrier` as a loop of one turn: no gradient passes.

    What enters a loop is computed before. A condition is cheaper (in an env step of MinAtar by a
    tenth to a half), but XLA then rounds some learning programs otherwise.
    """
    if on_gpu():
        return tf.nest.map_structure(tf.stop_gradient, nest)
    once = tf.cast(always, tf.int32)
    return tf.while_loop(
        lambda turn, _: turn < once,
        lambda turn, _: (turn + 1, nest),
        (0, tf.nest.map_structure(tf.zeros_like, nest)),
    )[1]
