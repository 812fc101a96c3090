"""Barriers that XLA's fusion does not pass."""

from __future__ import annotations

from typing import TypeVar

import tensorflow as tf

Nest = TypeVar("Nest")


def fusion_barrier(nest: Nest, always: tf.Tensor) -> Nest:
    """The same nest of tensors, which a compiled program computes here once.

    XLA's fusion on a CPU computes an intermediate result again in every use of it, which multiplies
    along a chain of steps. It does not look into the branches of a condition.

    Args:
        nest: Of tensors.
        always: [] bool that is always true, and that XLA cannot know to be.
    """
    return tf.cond(always, lambda: nest, lambda: tf.nest.map_structure(tf.zeros_like, nest))


def loop_fusion_barrier(nest: Nest, always: tf.Tensor) -> Nest:
    """`fusion_barrier` as a loop of one turn: no gradient passes.

    What enters a loop is computed before. A condition is cheaper (in an env step of MinAtar by a
    tenth to a half), but XLA then rounds some learning programs otherwise.
    """
    once = tf.cast(always, tf.int32)
    return tf.while_loop(
        lambda turn, _: turn < once,
        lambda turn, _: (turn + 1, nest),
        (0, tf.nest.map_structure(tf.zeros_like, nest)),
    )[1]
