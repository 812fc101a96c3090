"""The columns of a rollout while it is collected: what is written in every step."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

Arrays = list[tf.TensorArray]


class Columns:
    """An array for each column.

    Args:
        specs: Shape and dtype of the columns of one step, [E, ...] each.
        steps: Steps of the rollout, `T`.
    """

    def __init__(self, specs: Sequence[tf.TensorSpec], steps: int):
        self.specs, self.steps = specs, steps

    def arrays(self) -> Arrays:
        """Empty arrays, to be carried through the steps."""
        return [self.array(spec.dtype, spec.shape) for spec in self.specs]

    def array(self, dtype: tf.DType, shape: tf.TensorShape) -> tf.TensorArray:
        """An empty array of one tensor a step."""
        return tf.TensorArray(dtype, self.steps, element_shape=shape)

    def write(self, arrays: Arrays, time: tf.Tensor, columns: Sequence[tf.Tensor]) -> Arrays:
        """The arrays with one more step."""
        return [array.write(time, part) for array, part in zip(arrays, columns, strict=True)]

    def stack(self, arrays: Arrays) -> list[tf.Tensor]:
        """The columns [T, E, ...] of all steps."""
        return [array.stack() for array in arrays]
