"""Training data as tables in the device's memory, or streamed where it does not fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.machine.devices import device_name
from kytolly.machine.memory import available_bytes
from kytolly.search.text.buckets import BucketBatchSampler
from kytolly.search.text.rows import Columns, Rows, is_ragged, row_lengths
from kytolly.search.text.streaming import HostRows

DEVICE_SHARE = 4  # tables lie on the device where they take this part of its free memory, or less


@dataclasses.dataclass
class DeviceRows(Rows):
    """Tables in the device's memory; a call takes the numbers of its rows."""

    def __post_init__(self) -> None:
        self.tables = tf.nest.map_structure(
            lambda part: tf.Variable(part, trainable=False), dict(self.columns)
        )

    def arguments(self, number: int) -> tf.Tensor:
        """[group, B] rows of each batch."""
        epoch, place = divmod(number, self.sampler.groups_per_epoch)
        rows = self.sampler.epoch(epoch)[place].rows
        full = np.zeros([self.sampler.group, rows.shape[1]], np.int32)
        full[: len(rows)] = rows
        return tf.constant(full)

    def signature(self, bucket: int) -> tf.TensorSpec:
        """TensorSpec of `arguments`."""
        return tf.TensorSpec([self.sampler.group, self.sampler.batch_size], tf.int32)

    def batch(self, bucket: int, arguments: tf.Tensor, index: tf.Tensor) -> dict[str, tf.Tensor]:
        """The columns of batch `index`, gathered from the tables."""
        rows, lengths = tf.gather(arguments, index), self.lengths(bucket)
        return {
            name: table.matrix_on_device(rows, lengths[name])
            if is_ragged(table)
            else tf.gather(table, rows)
            for name, table in self.tables.items()
        }


def make_rows(cfg: SupervisedConfig, columns: Columns) -> Rows:
    """The training data as a program takes it, on the device or streamed, as configured.

    Args:
        cfg: Says the size of batches, the number of buckets, the seed and where the data lies.
        columns: `Ragged` or `Lookup` sequences of tokens and arrays [N, ...], of equally many
            rows, by name.

    Raises:
        ValueError: There is no row, or the columns differ in their number of rows.
    """
    limits = cfg.column_lengths
    columns = {
        name: column.cut(limits[name]) if name in limits and is_ragged(column) else column
        for name, column in columns.items()
    }
    lengths, group = row_lengths(columns), cfg.updates_per_call
    sampler = BucketBatchSampler(lengths, cfg.rows_per_update, cfg.num_buckets, cfg.seed, group)
    if not on_device(cfg, columns):
        return HostRows(columns, sampler, cfg.host_workers, device_name(cfg.device))
    return DeviceRows(columns, sampler)


def on_device(cfg: SupervisedConfig, columns: Columns) -> bool:
    """True if the columns fit on the device, or shall lie there anyway."""
    if cfg.tables != "auto":
        return cfg.tables == "device"
    size = sum(np.asarray(part).nbytes for part in tf.nest.flatten(dict(columns)))
    free = available_bytes(device_name(cfg.device))
    return free is None or size * DEVICE_SHARE <= free
