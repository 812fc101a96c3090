"""Batches of rows of similar length, so that little of what is computed is padding."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Group(NamedTuple):
    """Batches of one bucket that follow each other."""

    bucket: int
    rows: np.ndarray  # [n, B] numbers of rows, a line for each batch


class BucketBatchSampler:
    """Groups rows by length into buckets, and shuffles batches within and among them.

    Every batch has `batch_size` rows of one bucket, padded to the bucket's lengths: one fixed shape
    a bucket. The buckets are those that leave the least padding: beginning with one for all, the
    split that saves most is made, until there are `num_buckets` or nothing is saved. None has fewer
    rows than a batch. What is missing in the last batch of a bucket is filled with its own rows.

    The order is a function of the seed and the epoch alone. Batches of one bucket follow each other
    in groups of up to `group`, which one call of a program can take; the groups are shuffled.

    Args:
        lengths: [N] tokens of each row, or [N, K] where a row has K sequences.
        batch_size: Rows of a batch.
        num_buckets: Most buckets.
        seed: Of the order.
        group: Most batches of a group.

    Attributes:
        buckets: Numbers of the rows of each bucket, those of short rows first.
        bucket_lengths: [len(buckets), K] length to which each sequence of a bucket is padded.
        batches_per_epoch: Batches in which every row has its turn.
        groups_per_epoch: Groups of them.
    """

    def __init__(
        self,
        lengths: np.ndarray | Sequence[int] | Sequence[Sequence[int]],
        batch_size: int,
        num_buckets: int = 10,
        seed: int = 0,
        group: int = 1,
    ):
        lengths = np.asarray(lengths)
        if not len(lengths) or batch_size < 1 or num_buckets < 1 or group < 1:
            raise ValueError(
                f"BucketBatchSampler got {len(lengths)} rows, batch_size {batch_size}, num_buckets "
                f"{num_buckets} and group {group}, expected at least 1 of each. Raise them."
            )
        self._lengths = np.maximum(lengths.reshape(len(lengths), -1), 1)
        self.batch_size, self.seed, self.group = batch_size, seed, group
        self.buckets = split_rows(self._lengths, batch_size, num_buckets)
        self.bucket_lengths = np.array([self._lengths[rows].max(axis=0) for rows in self.buckets])
        self._batches = [-(-len(rows) // batch_size) for rows in self.buckets]
        self.batches_per_epoch = sum(self._batches)
        self.groups_per_epoch = sum(-(-count // group) for count in self._batches)
        self.epoch = functools.lru_cache(maxsize=2)(self._epoch)  # two: one is prepared ahead

    def _epoch(self, number: int) -> list[Group]:
        """The batches of an epoch, in their order."""
        random = np.random.default_rng([self.seed, number])
        groups = []
        for bucket, rows in enumerate(self.buckets):
            order = np.resize(random.permutation(rows), self._batches[bucket] * self.batch_size)
            batches = order.reshape(-1, self.batch_size)
            starts = range(0, len(batches), self.group)
            groups += [Group(bucket, batches[at : at + self.group]) for at in starts]
        return [groups[at] for at in random.permutation(len(groups))]

    @property
    def tokens_per_batch(self) -> float:
        """Mean tokens of a batch, without padding."""
        return float(self._lengths.sum(axis=1).mean()) * self.batch_size

    def padding_share(self) -> float:
        """Share of the tokens that an epoch computes that are padding."""
        return self._padding(self.bucket_lengths, self.buckets)

    def fixed_padding_share(self) -> float:
        """The same where all rows are padded to the longest one."""
        rows = np.arange(len(self._lengths))
        return self._padding(self._lengths.max(axis=0)[np.newaxis], [rows])

    def _padding(self, shapes: np.ndarray, buckets: Sequence[np.ndarray]) -> float:
        """Rows that are repeated to fill a batch count as what they are."""
        computed = real = 0.0
        for shape, rows in zip(shapes, buckets, strict=True):
            count = -(-len(rows) // self.batch_size) * self.batch_size
            computed += count * shape.sum()
            real += count * self._lengths[rows].sum(axis=1).mean()
        return float(1.0 - real / computed)


def split_rows(lengths: np.ndarray, smallest: int, most: int) -> list[np.ndarray]:
    """Row numbers of up to `most` buckets of at least `smallest` rows, short rows first.

    Args:
        lengths: [N, K] tokens of each sequence.
        smallest: Fewest rows; a single bucket may have fewer.
        most: Buckets.
    """
    buckets = [np.arange(len(lengths))]
    splits = [best_split(lengths, buckets[0], smallest)]
    while len(buckets) < most:
        best = max(range(len(buckets)), key=lambda at: splits[at][0])
        saving, *halves = splits[best]
        if saving <= 0:
            break
        buckets[best : best + 1] = halves
        splits[best : best + 1] = [best_split(lengths, half, smallest) for half in halves]
    return sorted(buckets, key=lambda rows: tuple(lengths[rows].max(axis=0)))


def best_split(lengths: np.ndarray, rows: np.ndarray, smallest: int) -> tuple[Any, ...]:
    """Tokens that the best split of a bucket saves, and the rows of its halves; (0,) for none."""
    best: tuple[Any, ...] = (0,)
    whole = len(rows) * lengths[rows].max(axis=0).sum()
    for column in range(lengths.shape[1]):
        order = rows[np.argsort(lengths[rows, column], kind="stable")]
        ordered = lengths[order]
        ends = np.flatnonzero(np.diff(ordered[:, column])) + 1  # equal lengths stay together
        ends = ends[(ends >= smallest) & (len(rows) - ends >= smallest)]
        if not len(ends):
            continue
        below = np.maximum.accumulate(ordered, axis=0)[ends - 1].sum(axis=1)
        above = np.maximum.accumulate(ordered[::-1], axis=0)[::-1][ends].sum(axis=1)
        savings = whole - ends * below - (len(rows) - ends) * above
        at = int(savings.argmax())
        if savings[at] > best[0]:
            best = int(savings[at]), order[: ends[at]], order[ends[at] :]
    return best
