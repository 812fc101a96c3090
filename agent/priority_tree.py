"""A tree of sums: draws a row with a probability in proportion to its number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kytolly.environment.fusion_barrier import on_gpu
from kytolly.policy.few_columns import by_column, row_sum

WIDTH = 8  # children of a node: `kytolly benchmark replay` measures others
FEW_NODES = 512  # sums that are computed anew at every draw, and not stored


class PriorityTree(tf.Module):
    """Numbers that are not negative, and the sums of `width` neighbors, of their sums, and so on.

    A sum is always computed from what it is the sum of, so nothing drifts. The levels nearest to
    the root are not stored.

    Args:
        capacity: Numbers; all are 0 at first.
        width: Children of a node. 2 makes a binary sum tree, the root of `capacity` two levels.
    """

    def __init__(self, capacity: int, width: int = WIDTH):
        super().__init__(name="priority_tree")
        self.capacity, self.width = capacity, width
        self.levels: list[tf.Variable] = []
        nodes = capacity
        while not self.levels or nodes > FEW_NODES:
            nodes = math.ceil(nodes / width)
            self.levels.append(tf.Variable(tf.zeros([nodes, width]), trainable=False))

    def numbers(self, slots: tf.Tensor) -> tf.Tensor:
        """[B] numbers of the [B] slots."""
        if on_gpu():
            return tf.gather(tf.reshape(self.levels[0], [-1]), slots)
        chosen = tf.one_hot(slots % self.width, self.width)
        return tf.reduce_sum(chosen * tf.gather(self.levels[0], slots // self.width), axis=-1)

    def set(self, slots: tf.Tensor, numbers: tf.Tensor) -> None:
        """Give [B] slots their [B] numbers; one that is there twice gets the one or the other."""
        for level in self.levels:
            places = tf.stack([slots // self.width, slots % self.width], axis=-1)
            level.scatter_nd_update(places, numbers)
            if level is not self.levels[-1]:
                slots = slots // self.width
                numbers = row_sum(tf.identity, tf.gather(level, slots))

    def fill(self, numbers: tf.Tensor) -> None:
        """Give all slots their numbers, [capacity]."""
        for level in self.levels:
            missing = level.shape.num_elements() - numbers.shape[0]
            level.assign(tf.reshape(tf.pad(numbers, [[0, missing]]), level.shape))
            numbers = tf.reduce_sum(level, axis=-1)

    def draw(self, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Slots at given shares of the sum of all numbers; never one whose number is 0.

        Args:
            share: [B] float64 in [0, 1): float32 cannot tell ten million rows apart.

        Returns:
            [B] int32 slots and [B] their numbers. Some number must be above 0.
        """
        levels = [*self._top_levels(), *reversed(self.levels)]
        root = levels[0]
        total = row_sum(tf.identity, root)[0] if by_column(root) else tf.reduce_sum(root)
        rest = share * tf.cast(total, tf.float64)
        node, number = tf.zeros(share.shape, tf.int32), tf.zeros(share.shape)
        for level in levels:
            child, number, rest = child_at(tf.gather(level, node), rest)
            node = node * self.width + child
        return node, number

    def _top_levels(self) -> list[tf.Tensor]:
        """The levels that are not stored, the root's children first."""
        levels: list[tf.Tensor] = []
        last: Any = tf.convert_to_tensor(self.levels[-1])
        while last.shape[0] > 1:
            sums = tf.pad(row_sum(tf.identity, last), [[0, -last.shape[0] % self.width]])
            last = tf.reshape(sums, [-1, self.width])
            levels.append(last)
        return levels[::-1]


def child_at(numbers: tf.Tensor, rest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The child of a node that holds a position in the sum of its numbers.

    Args:
        numbers: [B, K] of the children, none negative, and one of each row above 0.
        rest: [B] float64 place, from 0 to below the row's sum but for rounding.

    Returns:
        [B] int32 child, its number, which is above 0, and [B] the place within it.
    """
    if by_column(numbers):
        return _child_by_column(tf.unstack(numbers, axis=-1), rest)
    width = numbers.shape[1]
    place = tf.range(width)
    until = tf.matmul(numbers, tf.linalg.band_part(tf.ones([width, width]), 0, -1))
    # Rounding may end the sum below `rest`, or begin a child of 0: then the next best is taken.
    holds = (numbers > 0.0) & (until > tf.cast(rest, tf.float32)[:, tf.newaxis])
    first = tf.reduce_min(tf.where(holds, place, width), axis=-1)
    last = tf.reduce_max(tf.where(numbers > 0.0, place, 0), axis=-1)
    child = tf.minimum(first, last)
    chosen = tf.cast(place == child[:, tf.newaxis], tf.float32)
    number = tf.reduce_sum(chosen * numbers, axis=-1)
    before = tf.reduce_sum(chosen * until, axis=-1) - number
    return child, number, tf.maximum(rest - tf.cast(before, tf.float64), 0.0)


def _child_by_column(
    columns: Sequence[tf.Tensor], rest: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The same from the columns [B] of the numbers, one after the other."""
    sought = tf.cast(rest, tf.float32)
    child = tf.zeros(sought.shape, tf.int32)
    number = before = until = tf.zeros(sought.shape)
    found = tf.zeros(sought.shape, tf.bool)
    for index, column in enumerate(columns):
        # Until it is found, the last child above 0 is the best.
        takes = (column > 0.0) & ~found
        child = tf.where(takes, index, child)
        number, before = tf.where(takes, column, number), tf.where(takes, until, before)
        until += column
        found |= takes & (until > sought)
    return child, number, tf.maximum(rest - tf.cast(before, tf.float64), 0.0)
