"""Rows of training data, in batches of rows of similar length.

They lie as tables in the device's memory, or are streamed there where they do not fit: prepared on
the host while the device computes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.environment.state_variable import raw_variable, state_variable
from kytolly.machine.facts import device_name
from kytolly.machine.memory import available_bytes
from kytolly.search.text.buckets import BucketBatchSampler

DEVICE_SHARE = 4  # tables lie on the device where they take this part of its free memory, or less
PREPARED = 2  # groups of batches that wait on the device
PADDING = 0  # the token that fills a row up to its bucket's length


class Ragged(NamedTuple):
    """N sequences of tokens, end to end: no memory goes into padding."""

    tokens: Any  # [sum of lengths] int32
    starts: Any  # [N + 1] int32: row i is tokens[starts[i]:starts[i + 1]]

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]], max_length: int | None = None) -> Ragged:
        """Sequences of token numbers, each cut to `max_length`."""
        rows = [np.asarray(row, np.int32)[:max_length] for row in sequences]
        starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        if starts[-1] >= 2**31:
            raise ValueError(
                f"the texts have {starts[-1]:,} tokens, expected fewer than {2**31:,}. Split them."
            )
        tokens = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        return cls(tokens, starts.astype(np.int32))

    def part(self, rows: Iterable[int]) -> Ragged:
        """Some of the sequences."""
        return Ragged.of(self.tokens[self.starts[row] : self.starts[row + 1]] for row in rows)

    def cut(self, longest: int) -> Ragged:
        """The sequences without what comes after the first tokens."""
        if not len(self.lengths) or self.lengths.max() <= longest:
            return self
        starts = zip(self.starts[:-1], self.starts[1:], strict=True)
        return Ragged.of((self.tokens[a:b] for a, b in starts), longest)

    @property
    def lengths(self) -> np.ndarray:
        """[N] tokens of each row."""
        return np.diff(np.asarray(self.starts))

    def matrix(self, rows: np.ndarray, length: int) -> np.ndarray:
        """[..., length] tokens of the rows [...], with padding after their end."""
        starts, ends = self.starts[rows], self.starts[np.asarray(rows) + 1]
        places = starts[..., np.newaxis] + np.arange(length)
        if not len(self.tokens):
            return np.full(places.shape, PADDING, np.int32)
        last = len(self.tokens) - 1
        inside = places < ends[..., np.newaxis]
        return np.where(inside, self.tokens[np.minimum(places, last)], PADDING).astype(np.int32)

    def matrix_on_device(self, rows: tf.Tensor, length: int) -> tf.Tensor:
        """`matrix` in TensorFlow, where `tokens` and `starts` are variables."""
        starts, ends = tf.gather(self.starts, rows), tf.gather(self.starts, rows + 1)
        places = starts[..., tf.newaxis] + tf.range(length)
        last = tf.shape(self.tokens)[0] - 1
        tokens = tf.gather(self.tokens, tf.minimum(places, last))
        return tf.where(places < ends[..., tf.newaxis], tokens, PADDING)


class Lookup(NamedTuple):
    """N rows of sequences that lie in a table of their own, where several rows may share them.

    A batch has them as [B, ..., length] tokens, all padded to the longest one of their bucket.
    """

    table: Ragged
    rows: Any  # [N, ...] int32 rows of the table

    def cut(self, longest: int) -> Lookup:
        """The sequences without what comes after the first tokens."""
        return self._replace(table=self.table.cut(longest))

    @property
    def lengths(self) -> np.ndarray:
        """[N] tokens of the longest sequence of each row."""
        lengths = self.table.lengths[np.asarray(self.rows)]
        return lengths.reshape(len(lengths), -1).max(axis=1)

    def matrix(self, rows: np.ndarray, length: int) -> np.ndarray:
        """[..., length] tokens of the sequences of the rows."""
        return self.table.matrix(self.rows[rows], length)

    def matrix_on_device(self, rows: tf.Tensor, length: int) -> tf.Tensor:
        """`matrix` in TensorFlow, where the arrays are variables."""
        return self.table.matrix_on_device(tf.gather(self.rows, rows), length)


Column: TypeAlias = Ragged | Lookup | np.ndarray  # of N rows; an array is [N, ...]
Columns: TypeAlias = Mapping[str, Column]  # of equally many rows


class Call(NamedTuple):
    """The input of one call of a training program: some updates of one group of batches."""

    bucket: int
    first: int  # of the group's batches
    count: int  # updates
    arguments: Any  # as `Rows.signature` says


@dataclasses.dataclass
class Rows:
    """Training data in buckets: what both ways to the device have in common.

    Attributes:
        columns: The data.
        sampler: Says which rows a batch has.
    """

    columns: Columns
    sampler: BucketBatchSampler

    @property
    def variables(self) -> list[tf.Variable]:
        """Those that `batch` reads."""
        return []

    @property
    def updates_per_epoch(self) -> int:
        """Updates in which every row has its turn."""
        return self.sampler.batches_per_epoch

    @property
    def tokens_per_update(self) -> float:
        """Mean tokens of a batch, without padding."""
        return self.sampler.tokens_per_batch

    def call(self, update: int, most: int) -> Call:
        """The next call after `update` updates, of at most `most`."""
        epoch, place = divmod(update, self.updates_per_epoch)
        groups = self.sampler.epoch(epoch)
        ends = np.cumsum([len(group.rows) for group in groups])
        number = int(np.searchsorted(ends, place, side="right"))
        left = int(ends[number]) - place
        bucket, rows = groups[number]
        arguments = self.arguments(epoch * len(groups) + number)
        return Call(bucket, len(rows) - left, min(most, left), arguments)

    def example(self) -> dict[str, tf.Tensor]:
        """The first batch of the bucket of short rows, which builds a network."""
        rows = self.sampler.buckets[0][: self.sampler.batch_size]
        batch = column_matrix(self.columns, rows, self.sampler.bucket_lengths[0])
        return {name: tf.constant(values) for name, values in batch.items()}

    def lengths(self, bucket: int) -> dict[str, int]:
        """The length of each ragged column in a bucket."""
        names = [
            name for name, column in self.columns.items() if isinstance(column, Ragged | Lookup)
        ]
        return dict(zip(names, map(int, self.sampler.bucket_lengths[bucket]), strict=bool(names)))

    def arguments(self, number: int) -> Any:
        """The program's input for the group of that number, counted from the run's beginning."""
        raise NotImplementedError

    def signature(self, bucket: int) -> Any:
        """TensorSpecs of `arguments`, for a group of this bucket."""
        raise NotImplementedError

    def batch(self, bucket: int, arguments: Any, index: tf.Tensor) -> dict[str, tf.Tensor]:
        """The columns of batch `index` of a group, by name, within the program."""
        raise NotImplementedError


@dataclasses.dataclass
class DeviceRows(Rows):
    """Tables in the device's memory; a call takes the numbers of its rows."""

    def __post_init__(self) -> None:
        self.tables = tf.nest.map_structure(state_variable, dict(self.columns))

    @property
    def variables(self) -> list[tf.Variable]:
        """The tables."""
        return [raw_variable(table) for table in tf.nest.flatten(self.tables)]

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
            if isinstance(table, Ragged | Lookup)
            else tf.gather(table, rows)
            for name, table in self.tables.items()
        }


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
            if isinstance(column, Ragged | Lookup)
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
        name: column.cut(limits[name])
        if name in limits and isinstance(column, Ragged | Lookup)
        else column
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


def row_shape(column: Column) -> tuple[int, ...]:
    """The shape of a row, without the length of its sequences."""
    if isinstance(column, Ragged):
        return ()
    return tuple((column.rows if isinstance(column, Lookup) else column).shape[1:])


def row_lengths(columns: Columns) -> np.ndarray:
    """[N, K] lengths of the K ragged columns; [N, 1] ones where there is none.

    Raises:
        ValueError: There is no row, or the columns differ in their number of rows.
    """
    counts = {
        name: len(column.lengths) if isinstance(column, Ragged | Lookup) else len(column)
        for name, column in columns.items()
    }
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ValueError(
            f"the data has {counts} rows, expected the same number of rows, at least 1, in each "
            "column. Leave out rows that are not complete."
        )
    ragged = [column.lengths for column in columns.values() if isinstance(column, Ragged | Lookup)]
    return np.stack(ragged, axis=1) if ragged else np.ones([max(counts.values()), 1], np.int64)


def column_matrix(columns: Columns, rows: np.ndarray, lengths: Sequence[int]) -> dict[str, Any]:
    """The rows [...] of each column, the ragged ones padded to one length after the other."""
    left = iter(lengths)
    return {
        name: column.matrix(rows, int(next(left)))
        if isinstance(column, Ragged | Lookup)
        else np.asarray(column[rows])
        for name, column in columns.items()
    }
