"""The numbers of a rollout's step as plain tensors, for a program that is mapped over agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kytolly.loop.columns import Columns


class MappedColumns(Columns):
    """A tensor for each type of number: a map knows no `tf.TensorArray`. Flags are 0.0 and 1.0."""

    def __init__(self, specs: Sequence[tf.TensorSpec], steps: int):
        super().__init__(specs, steps)
        self.types = list(dict.fromkeys(map(stored_type, specs)))

    def arrays(self) -> Any:
        """Zeros [T, E, N] for each type."""
        return [
            tf.zeros([self.steps, self.specs[0].shape[0], sum(self.widths(dtype))], dtype)
            for dtype in self.types
        ]

    def widths(self, dtype: tf.DType) -> list[int]:
        """Numbers of an environment's step in each column that is stored by a type."""
        specs = [spec for spec in self.specs if stored_type(spec) == dtype]
        return [int(spec.shape[1:].num_elements()) for spec in specs]

    def write(self, arrays: Any, time: tf.Tensor, columns: Sequence[tf.Tensor]) -> Any:
        """The tensors with one more step."""
        written = []
        for dtype, array in zip(self.types, arrays, strict=True):
            parts = [
                tf.cast(tf.reshape(column, [column.shape[0], -1]), dtype)
                for spec, column in zip(self.specs, columns, strict=True)
                if stored_type(spec) == dtype
            ]
            row = tf.concat(parts, axis=-1)[tf.newaxis]
            written.append(tf.tensor_scatter_nd_update(array, [[time]], row))
        return written

    def stack(self, arrays: Any) -> list[tf.Tensor]:
        """The columns [T, E, ...] of all steps."""
        parts = {
            dtype: iter(tf.split(array, self.widths(dtype), axis=-1))
            for dtype, array in zip(self.types, arrays, strict=True)
        }
        return [
            tf.cast(
                tf.reshape(next(parts[stored_type(spec)]), [self.steps, *spec.shape]), spec.dtype
            )
            for spec in self.specs
        ]


def stored_type(spec: tf.TensorSpec) -> tf.DType:
    """The type in which a column is kept."""
    return tf.float32 if spec.dtype == tf.bool else spec.dtype
