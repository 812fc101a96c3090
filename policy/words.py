"""Columns of numbers and flags as 32-bit words side by side, for a GPU.

There each column that is written or gathered is a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kytolly.policy.batch import present, with_present

WORDS = (tf.float32, tf.int32, tf.bool)


def as_words(column: tf.Tensor) -> tf.Tensor:
    """[E, N] int32 with the bits of a column [E, ...]."""
    flat = tf.reshape(column, [column.shape[0], -1])
    return tf.bitcast(flat, tf.int32) if flat.dtype == tf.float32 else tf.cast(flat, tf.int32)


def from_words(spec: tf.TensorSpec, words: tf.Tensor) -> tf.Tensor:
    """The column [T, E, ...] of a spec, from [T, E, N] of its words."""
    is_float = spec.dtype == tf.float32
    flat = tf.bitcast(words, tf.float32) if is_float else tf.cast(words, spec.dtype)
    return tf.reshape(flat, [words.shape[0], *spec.shape])


class PackedRows:
    """Rows [N, ...] of which a batch is gathered at once.

    Args:
        rows: A structure of columns; those of other types than `WORDS` stay apart.
    """

    def __init__(self, rows: Any):
        self.structure, columns = rows, present(rows)
        self.count = columns[0].shape[0]
        self.packed = [column for column in columns if column.dtype in WORDS]
        words = [as_words(column) for column in self.packed]
        self.widths = [int(part.shape[1]) for part in words]
        self.words = tf.concat(words, axis=-1)

    def gather(self, slots: tf.Tensor) -> Any:
        """The rows at [B] slots, in the structure of all."""
        parts: Sequence[tf.Tensor] = tf.split(tf.gather(self.words, slots), self.widths, axis=-1)
        packed = iter(zip(self.packed, parts, strict=True))
        columns = []
        for column in present(self.structure):
            if column.dtype not in WORDS:
                columns.append(tf.gather(column, slots))
                continue
            spec, part = next(packed)
            spec = tf.TensorSpec(spec.shape[1:], spec.dtype)
            columns.append(from_words(spec, part))
        return with_present(self.structure, columns)
