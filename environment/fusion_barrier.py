"""What is computed otherwise on a CPU than on a GPU: barriers that XLA's fusion does not pass."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

import tensorflow as tf

Nest = TypeVar("Nest")

_mapped = contextvars.ContextVar("mapped", default=False)


def on_gpu() -> bool:
    """True while a program for a GPU is traced."""
    return "GPU" in tf.constant(0).device


def is_mapped() -> bool:
    """True while a function of one agent is traced that is mapped over agents."""
    return _mapped.get()


def is_straight() -> bool:
    """True while a program is traced that has neither conditions nor loops of unknown length.

    On a GPU the host waits for the device at each; mapped over agents they do not compile.
    """
    return is_mapped() or on_gpu()


@contextlib.contextmanager
def mapped() -> Iterator[None]:
    """Within, a function of one agent is traced that is mapped over agents."""
    token = _mapped.set(True)
    try:
        yield
    finally:
        _mapped.reset(token)


def fusion_barrier(nest: Nest, always: tf.Tensor) -> Nest:
    """The same nest of tensors, which a compiled program computes here once.

    XLA's fusion on a CPU computes an intermediate result again in every use of it, which multiplies
    along a chain of steps. It does not look into the branches of a condition. On a GPU, and mapped
    over agents, it is no barrier.

    Args:
        nest: Of tensors.
        always: [] bool that is always true, and that XLA cannot know to be.
    """
    if is_straight():
        return nest
    return tf.cond(always, lambda: nest, lambda: tf.nest.map_structure(tf.zeros_like, nest))


def loop_fusion_barrier(nest: Nest, always: tf.Tensor) -> Nest:
    """`fusion_barrier` as a loop of one turn: no gradient passes.

    What enters a loop is computed before. A condition is cheaper (in an env step of MinAtar by a
    tenth to a half), but XLA then rounds some learning programs otherwise.
    """
    if is_straight():
        return tf.nest.map_structure(tf.stop_gradient, nest)
    once = tf.cast(always, tf.int32)
    return tf.while_loop(
        lambda turn, _: turn < once,
        lambda turn, _: (turn + 1, nest),
        (0, tf.nest.map_structure(tf.zeros_like, nest)),
    )[1]
