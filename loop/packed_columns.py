"""All numbers of a rollout's step in one tensor, for a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from kytolly.loop.columns import Arrays, Columns
from kytolly.policy.words import WORDS, as_words, from_words


class PackedColumns(Columns):
    """One array of 32-bit words for all columns of numbers and flags, and one for each other.

    On a GPU, where each array that is written is a kernel of every step.
    """

    def __init__(self, specs: Sequence[tf.TensorSpec], steps: int):
        super().__init__(specs, steps)
        self.packed = [spec for spec in specs if spec.dtype in WORDS]
        self.widths = [int(spec.shape[1:].num_elements()) for spec in self.packed]

    def arrays(self) -> Arrays:
        """As in the parent; the packed one comes first."""
        words = self.array(tf.int32, tf.TensorShape([self.packed[0].shape[0], sum(self.widths)]))
        return [words, *Columns(self.others(self.specs), self.steps).arrays()]

    def others(self, columns: Sequence) -> list:
        """Those of the columns, or of their specs, that are not packed."""
        return [column for column in columns if column.dtype not in WORDS]

    def write(self, arrays: Arrays, time: tf.Tensor, columns: Sequence[tf.Tensor]) -> Arrays:
        """As in the parent."""
        words = [as_words(column) for column in columns if column.dtype in WORDS]
        parts = [tf.concat(words, axis=-1), *self.others(columns)]
        return super().write(arrays, time, parts)

    def stack(self, arrays: Arrays) -> list[tf.Tensor]:
        """As in the parent."""
        words, *others = super().stack(arrays)
        packed = iter(zip(self.packed, tf.split(words, self.widths, axis=-1), strict=True))
        rest = iter(others)
        return [
            from_words(*next(packed)) if spec.dtype in WORDS else next(rest) for spec in self.specs
        ]
