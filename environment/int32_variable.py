"""int32 numbers as a uint32 variable, which TensorFlow keeps on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

SAVED_NAME = "VARIABLE_VALUE"  # as that of a `tf.Variable` in a checkpoint


class Int32Variable(tf.Module):
    """What a program needs of an int32 `tf.Variable`, on a GPU.

    In a checkpoint it is an int32 variable, so that a run goes on on a CPU.

    Args:
        value: int32 numbers at the beginning.
        name: In messages.

    Attributes:
        words: The same bits as a uint32 variable.
    """

    dtype = tf.int32
    words: tf.Variable

    def __init__(self, value: Any, name: str | None = None):
        super().__init__(name)
        words = tf.constant(tf.convert_to_tensor(value).numpy().astype(np.uint32))
        words = tf.Variable(words, trainable=False, name=name)
        vars(self)["words"] = words  # not tracked, because a checkpoint has the numbers

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of the numbers."""
        return self.words.shape

    def read_value(self) -> tf.Tensor:
        """All numbers."""
        return tf.cast(self.words.read_value(), tf.int32)

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Rows, for `tf.gather`."""
        return tf.cast(tf.gather(self.words, indices, name=name), tf.int32)

    def numpy(self) -> np.ndarray:
        """The numbers on the host."""
        return self.words.numpy().astype(np.int32)

    def assign(self, value: Any) -> None:
        """Replace all numbers."""
        self.words.assign(unsigned(value))

    def assign_add(self, value: Any) -> None:
        """Add to the numbers."""
        self.words.assign_add(unsigned(value))

    def scatter_nd_update(self, indices: Any, updates: Any) -> None:
        """Replace the numbers at [N, K] indices."""
        self.words.scatter_nd_update(indices, unsigned(updates))

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        return self.read_value()

    def _serialize_to_tensors(self) -> Mapping[str, tf.Tensor]:
        with tf.device("/CPU:0"):
            return {SAVED_NAME: tf.identity(self.read_value())}

    def _restore_from_tensors(self, restored: Mapping[str, tf.Tensor]) -> None:
        self.assign(restored[SAVED_NAME])


def unsigned(value: Any) -> tf.Tensor:
    """int32 numbers as uint32, with the same bits."""
    return tf.cast(tf.convert_to_tensor(value, tf.int32), tf.uint32)
