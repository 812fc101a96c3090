"""Numbers in place of what an environment of Discrete and MultiDiscrete spaces has."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np


class Encoding(NamedTuple):
    """The way to an array of numbers from what an environment returns: one-hot, or a first axis.

    Of actions it is the way back, from components that an agent numbers from 0.

    Attributes:
        shape: Of what the environment has; () for a number.
        counts: How many numbers each component may be; those of observations become one-hot, one
            after another.
        starts: The lowest number of each component.
    """

    shape: tuple[int, ...]
    counts: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    def one_hot(self, values: np.ndarray) -> np.ndarray | None:
        """[..., sum(counts)] float32 of integers [..., *shape]; None where one is out of range."""
        if values.dtype.kind not in "iu":
            return None
        counts, starts, offsets = _as_arrays(self.counts, self.starts)
        batch = values.shape[: values.ndim - len(self.shape)]
        index = values.reshape(-1, len(counts)).astype(np.int64) - starts  # a uint64 would be float
        if ((index < 0) | (index >= counts)).any():
            return None
        rows, size = len(index), sum(self.counts)
        result, ones = np.zeros(rows * size, np.float32), index + offsets
        result[ones if rows == 1 else ones + size * np.arange(rows)[:, np.newaxis]] = 1.0
        return result.reshape(*batch, size)

    def action(self, numbers: np.ndarray) -> np.ndarray:
        """The environment's actions [B, *shape] of an agent's, [B] or [B, D]."""
        actions = numbers.reshape(-1, *self.shape)
        starts = np.array(self.starts, np.int64).reshape(self.shape) if self.starts else None
        return actions if starts is None else actions + starts

    def numbers(self, actions: np.ndarray) -> np.ndarray:
        """The way back: [B] or [B, D] of an agent from the environment's [B, *shape]."""
        rows = actions.reshape(len(actions), -1)
        rows = rows - np.array(self.starts, np.int64) if self.starts else rows
        return rows[:, 0] if self.counts and not self.shape else rows

    def range_text(self) -> str:
        """The numbers that are expected."""
        last = [first + count - 1 for first, count in zip(self.starts, self.counts, strict=True)]
        if self.shape:
            return f"integers from {list(self.starts)} to {last}"
        return f"an integer from {self.starts[0]} to {last[0]}"


@functools.cache  # called at every env step
def _as_arrays(counts: tuple[int, ...], starts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Counts and starts, and the place of each component's first number."""
    sizes = np.array(counts, np.int64)
    return sizes, np.array(starts, np.int64), np.cumsum(sizes) - sizes
