"""One of several devices that train an agent together, while its program is traced."""

from __future__ import annotations

import itertools
import math
from typing import Any

import tensorflow as tf

from kytolly.environment.memory import MEMORY, has_memory
from kytolly.policy.batch import map_columns, present, with_present


class Replica:
    """A device's part of all rows, and what it exchanges with the others.

    The exchange is a sum over the devices, the one collective operation that XLA compiles. Each
    call of `sum` is a place in the program, which all devices must pass in the same order.

    Args:
        index: Number of the device, from 0.
        count: Devices.
        group: Number of the group that they are, another one for other devices.
        key: First of the numbers that tell the sums of a program apart.
    """

    def __init__(self, index: int, count: int, group: int, key: int):
        self.index, self.count, self.group = index, count, group
        self._keys = itertools.count(key)

    def own(self, column: tf.Tensor, axis: int = 0) -> tf.Tensor:
        """This device's part of a column, `count` equal ones along an axis."""
        return tf.split(column, self.count, axis=axis)[self.index]

    def own_draws(
        self, random_bits: tf.Tensor, numbers: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The part of draws [T, E, N] and [E, N], if any, for this device's environments."""
        return self.own(random_bits, axis=1), None if numbers is None else self.own(numbers)

    def own_rows(self, batch: Any) -> Any:
        """The part [B / count, ...] of a batch's columns [B, ...]; those of fewer rows stay.

        But of sequences the columns with a row for each sequence are divided as well.
        """
        divided = [max(column.shape[0] for column in present(batch))]
        if has_memory(getattr(batch, "obs", None)):
            divided.append(batch.obs[MEMORY].shape[0])
        return map_columns(lambda x: self.own(x) if x.shape[0] in divided else x, batch)

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum of the tensors of all devices, the same bits on each."""
        total = tf.raw_ops.CollectiveReduceV2(
            # TensorFlow numbers the exchanges of each loop anew, and XLA for GPUs gives those of
            # one number one layout: so all have one axis.
            input=tf.reshape(tensor, [-1]),
            group_size=self.count,
            group_key=self.group,
            instance_key=next(self._keys),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )
        return tf.reshape(total, tensor.shape)

    def all(self, column: tf.Tensor, axis: int = 0) -> tf.Tensor:
        """The parts of all devices along an axis, of float32 or int32."""
        size = int(column.shape[axis])
        padding = [[0, 0] for _ in column.shape]
        padding[axis] = [self.index * size, (self.count - 1 - self.index) * size]
        return self.sum(tf.pad(column, padding))

    def all_columns(self, structure: Any, axis: int) -> Any:
        """The same for each column of a structure, of any type, bit for bit and in one exchange.

        The axes up to that one are the same in all columns.
        """
        columns = present(structure)
        words = [as_words(column, axis) for column in columns]
        widths = [int(part.shape[-1]) for part in words]
        parts = tf.split(self.all(tf.concat(words, axis=-1), axis), widths, axis=-1)
        pairs = zip(columns, parts, strict=True)
        return with_present(structure, [from_words(column, part) for column, part in pairs])

    def mean(
        self, gradient: tf.Tensor, loss: tf.Tensor, td_error: tf.Tensor | None, metrics: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None, tf.Tensor]:
        """The means over devices of a gradient [W] and of a `Loss`, and the errors of all rows."""
        parts = [gradient, loss[tf.newaxis], metrics]
        sizes = [int(part.shape[0]) for part in parts]
        errors: list[tf.Tensor] = []
        if td_error is not None:
            rows = int(td_error.shape[0])
            before, after = self.index * rows, (self.count - 1 - self.index) * rows
            errors = [tf.pad(td_error, [[before, after]])]
            sizes.append(self.count * rows)
        summed = self.sum(tf.concat([tf.concat(parts, axis=0) / self.count, *errors], axis=0))
        gradient, loss, metrics, *errors = tf.split(summed, sizes)
        return gradient, loss[0], errors[0] if errors else None, metrics


def as_words(column: tf.Tensor, axis: int) -> tf.Tensor:
    """[..., N] int32 with the bits of a column [..., *row], whose rows begin after an axis."""
    column = tf.cast(column, tf.uint8) if column.dtype == tf.bool else column
    flat = tf.reshape(column, [*column.shape[: axis + 1], -1])
    in_word = 4 // column.dtype.size
    if in_word > 1:
        padding = [[0, 0]] * (axis + 1) + [[0, -int(flat.shape[-1]) % in_word]]
        flat = tf.reshape(tf.pad(flat, padding), [*flat.shape[:-1], -1, in_word])
    words = flat if flat.dtype == tf.int32 else tf.bitcast(flat, tf.int32)
    return tf.reshape(words, [*column.shape[: axis + 1], -1])


def from_words(column: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """[..., *row] of the type and the rows of a column, from [..., N] of its words."""
    dtype = tf.uint8 if column.dtype == tf.bool else column.dtype
    leading = words.shape[:-1]
    row = [int(n) for n in column.shape[len(leading) :]]
    if dtype.size > 4:
        words = tf.reshape(words, [*leading, -1, dtype.size // 4])
    values = words if dtype == tf.int32 else tf.bitcast(words, dtype)
    values = tf.reshape(values, [*leading, -1])[..., : math.prod(row)]
    return tf.cast(tf.reshape(values, [*leading, *row]), column.dtype)
