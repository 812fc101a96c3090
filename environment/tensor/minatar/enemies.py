"""Enemies of MinAtar's Seaquest, as bits: fish, submarines, and when submarines shoot.

A row of enemies of one kind is one uint64: ten bits, the columns, for each of the six values of the
timer that says in how many env steps an enemy moves. All enemies of a row move to the same side.
Those that share a column have different timers; the older has the smaller.

When a submarine shoots depends on its own timer of eleven values, whatever the other says. Its
column under that timer is one of eleven times ten bits, in a pair of uint64: `Shots`. Submarines
that share a column came within two env steps, because a column takes three at the highest speed.
So the older is the one whose timer is smaller by one or two, modulo eleven.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.tensor.minatar.game import FULL_ROW, SIZE, bit, both, column_shift, either

TIMERS = 6  # values of the timer of moves, 0 to 5
SHOT_TIMERS = 11  # and of the timer of shots, 0 to 10
_LOW = 6  # of these are in the first number
_HIGH = SHOT_TIMERS - _LOW  # and in the second
_FIRST_COLUMN = sum(1 << SIZE * timer for timer in range(TIMERS))  # under every timer


class Shots(NamedTuple):
    """Columns of submarines by the env steps until they shoot, [10, E] uint64 each."""

    low: tf.Tensor  # 0 to 5
    high: tf.Tensor  # 6 to 10


def in_columns(timed: tf.Tensor) -> tf.Tensor:
    """Rows of bits int32: the columns in which there are enemies, whatever their timers."""
    halves = either(timed, _down(timed, 3))
    return tf.cast(
        both(either(halves, either(_down(halves, 1), _down(halves, 2))), FULL_ROW), tf.int32
    )


def with_timer(row: tf.Tensor, timer: tf.Tensor) -> tf.Tensor:
    """Enemies [10, E] uint64 in the columns of `row` [10, E], all with the timer [E]."""
    return tf.bitwise.left_shift(tf.cast(row, tf.uint64), tf.cast(SIZE * timer, tf.uint64))


def without_oldest(timed: tf.Tensor, hit: tf.Tensor) -> tf.Tensor:
    """Enemies [10, E] without the oldest of each column that was hit."""
    older = _up(timed, 1)
    older = either(older, _up(older, 1))
    older = either(either(older, _up(older, 2)), _up(timed, 5))
    return _without(timed, _without(_under_every_timer(hit), older))


def movers(timed: tf.Tensor) -> tf.Tensor:
    """Rows of bits [10, E] int32: the enemies that move now."""
    return tf.cast(both(timed, FULL_ROW), tf.int32)


def after_move(timed: tf.Tensor, moved: tf.Tensor, timer: tf.Tensor) -> tf.Tensor:
    """Enemies [10, E] one step on, those that moved at their places `moved` and with `timer`."""
    return either(_down(timed, 1), with_timer(moved, timer))


def to_side(row: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Rows of bits a column on, to the right or else to the left."""
    return tf.where(right, column_shift(row, 1), column_shift(row, -1))


def first_column(from_left: tf.Tensor) -> tf.Tensor:
    """Rows of bits [E]: the column in which something arrives."""
    return tf.where(from_left, bit(0), bit(SIZE - 1))


def with_shooters(shots: Shots, row: tf.Tensor) -> Shots:
    """New submarines in the columns of `row` [10, E], which have the longest to wait."""
    new = tf.bitwise.left_shift(tf.cast(row, tf.uint64), SIZE * (_HIGH - 1))
    return Shots(shots.low, either(shots.high, new))


def shots_of_oldest(shots: Shots, row: tf.Tensor) -> Shots:
    """Timers of the oldest submarine of each of the columns in `row` [10, E]."""
    one = _earlier(shots)
    two = _earlier(one)
    everywhere = _under_every_timer(row)
    return Shots(
        _without(both(shots.low, everywhere), either(one.low, two.low)),
        _without(both(shots.high, everywhere), either(one.high, two.high)),
    )


def shots_without_oldest(shots: Shots, hit: tf.Tensor) -> Shots:
    """Timers without those of the oldest of each column [10, E] that was hit."""
    lost = shots_of_oldest(shots, hit)
    return Shots(_without(shots.low, lost.low), _without(shots.high, lost.high))


def shots_after_move(
    shots: Shots, moving: Shots, hit: tf.Tensor, right: tf.Tensor
) -> tuple[Shots, tf.Tensor]:
    """Timers one step on, and the columns [10, E] int32 from which submarines shoot.

    Args:
        shots: Of all submarines.
        moving: Of those that move.
        hit: Columns [10, E] in which a submarine arrives and is hit; it still shoots.
        right: [10, E] bool, where they swim to.
    """
    last = _FIRST_COLUMN << SIZE - 1
    low, high = (
        tf.where(
            right,
            tf.bitwise.left_shift(_without(part, last), 1),
            tf.bitwise.right_shift(_without(part, _FIRST_COLUMN), 1),
        )
        for part in moving
    )
    stay_low, stay_high = _without(shots.low, moving.low), _without(shots.high, moving.high)
    shooting = movers(either(stay_low, low))
    hits = _under_every_timer(hit)
    after = Shots(either(stay_low, _without(low, hits)), either(stay_high, _without(high, hits)))
    return _later(after), shooting


def _later(shots: Shots) -> Shots:
    """Timers less one, modulo eleven."""
    return Shots(
        either(_down(shots.low, 1), _up(both(shots.high, FULL_ROW), _LOW - 1)),
        either(_down(shots.high, 1), _up(both(shots.low, FULL_ROW), _HIGH - 1)),
    )


def _earlier(shots: Shots) -> Shots:
    """Timers plus one, modulo eleven."""
    low, high = _down(shots.low, _LOW - 1), _down(shots.high, _HIGH - 1)
    full_low, full_high = (1 << SIZE * _LOW) - 1, (1 << SIZE * _HIGH) - 1
    return Shots(
        either(both(_up(shots.low, 1), full_low), high),
        either(both(_up(shots.high, 1), full_high), low),
    )


def _under_every_timer(row: tf.Tensor) -> tf.Tensor:
    row = tf.cast(row, tf.uint64)
    row = either(either(row, _up(row, 1)), _up(row, 2))
    return either(row, _up(row, 3))


def _without(bits: tf.Tensor, others: tf.Tensor | int) -> tf.Tensor:
    return both(bits, tf.bitwise.invert(tf.cast(others, bits.dtype)))


def _down(timed: tf.Tensor, timers: int) -> tf.Tensor:
    return tf.bitwise.right_shift(timed, SIZE * timers)


def _up(timed: tf.Tensor, timers: int) -> tf.Tensor:
    return tf.bitwise.left_shift(timed, SIZE * timers)
