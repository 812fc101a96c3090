"""Training data that does not fit on the device: prepared on the host while the device computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.search.text.rows import Rows, column_matrix, is_ragged, row_shape

PREPARED = 2  # groups of batches that wait on the device


@dataclasses.dataclass
class HostRows(Rows):
    """Groups of batches that `tf.data` makes ahead of the program that takes them.

    A column may be whatever gives an array for an array of row numbers, such as a `np.memmap`.

    Attributes:
        workers: Threads that make them.
        device: Where the program runs; None leaves it to TensorFlow.
    """

    workers: int = 2
    device: str | None = None

    def __post_init__(self) -> None:
        self._next, self._stream = -1, iter(())
        self._current: tuple[int, Any] = (-1, None)

    def arguments(self, number: int) -> dict[str, tf.Tensor]:
        """The columns [group, B, ...] of a group's batches, by name."""
        if self._current[0] != number:
            if number != self._next:
                self._stream = iter(self._dataset(number))
            self._next = number + 1
            self._current = number, dict(zip(self.columns, next(self._stream), strict=True))
        return self._current[1]

    def signature(self, bucket: int) -> dict[str, tf.TensorSpec]:
        """TensorSpecs of `arguments`."""
        front, lengths = [self.sampler.group, self.sampler.batch_size], self.lengths(bucket)
        return {
            name: tf.TensorSpec([*front, *row_shape(column), lengths[name]], tf.int32)
            if is_ragged(column)
            else tf.TensorSpec([*front, *row_shape(column)], column.dtype)
            for name, column in self.columns.items()
        }

    def batch(
        self, bucket: int, arguments: dict[str, tf.Tensor], index: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The columns of batch `index`."""
        return {name: tf.gather(column, index) for name, column in arguments.items()}

    def _dataset(self, first: int) -> tf.data.Dataset:
        dtypes = [spec.dtype for spec in self.signature(0).values()]
        data = tf.data.Dataset.range(first, 2**62).map(
            lambda number: tf.numpy_function(self._columns, [number], dtypes),
            num_parallel_calls=self.workers,
            deterministic=True,
        )
        if self.device is not None and "GPU" in self.device:
            data = data.apply(tf.data.experimental.copy_to_device(self.device))
        return data.prefetch(PREPARED)

    def _columns(self, number: np.ndarray) -> list[np.ndarray]:
        epoch, place = divmod(int(number), self.sampler.groups_per_epoch)
        bucket, rows = self.sampler.epoch(epoch)[place]
        full = np.resize(rows, [self.sampler.group, rows.shape[1]])
        return list(column_matrix(self.columns, full, self.sampler.bucket_lengths[bucket]).values())
