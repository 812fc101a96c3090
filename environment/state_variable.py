"""Variables of a program's state, which must lie on the device that the program runs on.

TensorFlow keeps variables of int32 numbers on the host: they have no kernel for GPUs, and XLA
refuses a program that reads a variable of another device. uint32 has one.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_described = contextvars.ContextVar("described", default=False)


@contextlib.contextmanager
def state_for_a_gpu() -> Iterator[None]:
    """Within, state is made as on a GPU, for programs that are traced for one without having it."""
    token = _described.set(True)
    try:
        yield
    finally:
        _described.reset(token)


def state_variable(value: Any, name: str | None = None) -> Any:
    """A variable that is not trained, on the device on which TensorFlow now computes.

    Returns:
        A `tf.Variable`; of int32 numbers on a GPU an `Int32Variable`.
    """
    value = tf.convert_to_tensor(value)
    if value.dtype == tf.int32 and (_described.get() or "GPU" in tf.zeros([]).device):
        from kytolly.environment.int32_variable import Int32Variable

        return Int32Variable(value, name)
    return tf.Variable(value, trainable=False, name=name)


def raw_variable(variable: Any) -> tf.Variable:
    """The `tf.Variable` that holds a `state_variable`."""
    return getattr(variable, "words", variable)
