"""Outputs of a network for rows of held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.search.text.buckets import BucketBatchSampler
from kytolly.search.text.rows import Columns, column_matrix, row_lengths

TOKENS_AT_ONCE = 2**15  # of a batch of texts that come once
STEP = 32  # tokens: lengths of such batches are multiples of it, so that few are traced


class RowOutputs:
    """Calls a network with held-out rows, in batches of similar length, compiled.

    Its weights may change between two calls; the rows may not.

    Args:
        network: Keras model.
        function: From the network and a batch, as a task's loss gets it but for `seed`, to outputs
            [B, ...] of the same shape in every bucket.
        columns: `Ragged` tokens and arrays [N, ...], by name.
        batch_size: Rows of a batch.
        num_buckets: Most shapes, each of which is compiled.
        xla: Compile with XLA.
    """

    def __init__(
        self,
        network: keras.Model,
        function: Callable[[keras.Model, Mapping[str, tf.Tensor]], tf.Tensor],
        columns: Columns,
        batch_size: int = 64,
        num_buckets: int = 4,
        xla: bool = True,
    ):
        lengths = row_lengths(columns)
        self.columns = columns
        self.sampler = BucketBatchSampler(lengths, min(batch_size, len(lengths)), num_buckets)

        def outputs(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
            return function(network, batch)

        self._function = tf.function(outputs, jit_compile=xla or None, autograph=False)

    def __call__(self) -> np.ndarray:
        """[N, ...] outputs, in the order of the rows."""
        outputs: Any = None
        size = self.sampler.batch_size
        for rows, lengths in zip(self.sampler.buckets, self.sampler.bucket_lengths, strict=True):
            for at in range(0, len(rows), size):
                part = rows[at : at + size]
                full = np.resize(part, size)  # a last batch that is short repeats its rows
                batch = column_matrix(self.columns, full, lengths)
                values = self._function({k: tf.constant(v) for k, v in batch.items()}).numpy()
                if outputs is None:
                    outputs = np.zeros([sum(map(len, self.sampler.buckets)), *values.shape[1:]])
                    outputs = outputs.astype(values.dtype)
                outputs[part] = values[: len(part)]
        return outputs


def length_batches(lengths: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Row numbers of batches, and the length that fits all of a batch, a multiple of `STEP`."""
    order = np.argsort(lengths, kind="stable")
    rounded = np.maximum(-(-lengths[order] // STEP), 1) * STEP
    for length in np.unique(rounded):
        rows = order[rounded == length]
        size = max(TOKENS_AT_ONCE // int(length), 1)
        for at in range(0, len(rows), size):
            yield rows[at : at + size], int(length)
