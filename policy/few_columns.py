"""Reductions of rows of few numbers, which on a GPU are no kernels of their own.

A GPU's program adds column by column, which fuses with what comes before and after. The CPU's has
a reduction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import tensorflow as tf

from kytolly.environment.fusion_barrier import on_gpu

MAX_COLUMNS = 8


def by_column(x: tf.Tensor, axis: int = -1) -> bool:
    """True where a reduction of this axis is written out."""
    return on_gpu() and int(x.shape[axis]) <= MAX_COLUMNS


def row_sum(function: Callable[..., tf.Tensor], *terms: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Sums along an axis of a function of terms, which works on each number by itself."""
    if not by_column(terms[0], axis):
        return tf.reduce_sum(function(*terms), axis=axis)
    columns = zip(*(tf.unstack(term, axis=axis) for term in terms), strict=True)
    return tf.add_n([function(*column) for column in columns])


def sums(*terms: tf.Tensor) -> list[tf.Tensor]:
    """[B] sum of the rows of each of several [B, N] terms, on a GPU by a single reduction."""
    if not on_gpu():
        return [tf.reduce_sum(term, axis=-1) for term in terms]
    return tf.unstack(tf.reduce_sum(tf.stack(terms, axis=1), axis=-1), axis=1)


def means(*columns: tf.Tensor) -> list[tf.Tensor]:
    """[] mean of each of several [B] columns, on a GPU by a single reduction."""
    if not on_gpu():
        return [tf.reduce_mean(column) for column in columns]
    return tf.unstack(tf.reduce_mean(tf.stack(columns), axis=-1))


def row_max(x: tf.Tensor, axis: int = -1, keepdims: bool = False) -> tf.Tensor:
    """Largest numbers along an axis."""
    return _reduced(tf.reduce_max, tf.maximum, x, axis, keepdims)


def row_min(x: tf.Tensor, axis: int = -1, keepdims: bool = False) -> tf.Tensor:
    """Smallest numbers along an axis."""
    return _reduced(tf.reduce_min, tf.minimum, x, axis, keepdims)


def row_argmax(x: tf.Tensor) -> tf.Tensor:
    """Int32 places of the largest numbers along the last axis, of equal ones the first."""
    if not by_column(x):
        return tf.argmax(x, axis=-1, output_type=tf.int32)
    columns = tf.unstack(x, axis=-1)
    best, place = columns[0], tf.zeros(columns[0].shape, tf.int32)
    for index, column in enumerate(columns[1:], 1):
        place = tf.where(column > best, index, place)
        best = tf.maximum(column, best)
    return place


def log_softmax(x: tf.Tensor) -> tf.Tensor:
    """Logarithms of the softmax along the last axis."""
    if not by_column(x):
        return tf.nn.log_softmax(x)
    columns = tf.unstack(x, axis=-1)
    largest = tf.stop_gradient(reduce(tf.maximum, columns))
    columns = [column - largest for column in columns]
    logarithm = tf.math.log(tf.add_n([tf.exp(column) for column in columns]))
    return tf.stack([column - logarithm for column in columns], axis=-1)


def _reduced(
    reduction: Callable[..., tf.Tensor],
    combined: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    x: tf.Tensor,
    axis: int,
    keepdims: bool,
) -> tf.Tensor:
    if not by_column(x, axis):
        return reduction(x, axis=axis, keepdims=keepdims)
    row = reduce(combined, tf.unstack(x, axis=axis))
    return tf.expand_dims(row, axis) if keepdims else row
