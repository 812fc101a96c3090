"""What XLA says where it cannot compile a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import tensorflow as tf

from kytolly.loop.faults import is_out_of_memory

ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.NotFoundError,
    tf.errors.InternalError,
)
WORDS = ("compil", "xla", "jit", "unsupported op", "const", "hlo")


def is_refusal(error: tf.errors.OpError) -> bool:
    """Whether XLA could not compile, and the program itself may be right."""
    if is_out_of_memory(error):
        return False
    return isinstance(error, ERRORS) and any(word in str(error).lower() for word in WORDS)


def warn_of_refusal(function: Callable, error: tf.errors.OpError) -> None:
    """Say that a program runs without XLA, and why."""
    reason = " ".join(str(error).split())[:300]
    warnings.warn(
        f"XLA cannot compile {getattr(function, '__qualname__', 'this program')}: "
        f"{reason} Training goes on without XLA, slower. Set xla=False to choose that.",
        stacklevel=4,
    )
