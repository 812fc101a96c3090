"""MinAtar's Freeway in tensor code."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.minatar.game import (
    DOWN,
    NOTHING,
    SIZE,
    UP,
    MinAtarGame,
    any_row,
    bit,
    both,
    column_shift,
    either,
    row_numbers,
)

LANES = 8  # in the rows 1 to 8
START_ROW = SIZE - 1
COLUMN = 4  # in which the chicken walks
WALK_STEPS = 3  # env steps from one step of the chicken to the next, less one
TIME_LIMIT = 2_500  # an episode is one step longer
SPEEDS = 5  # a car of speed k waits for k env steps before it moves
CAR_KINDS = 2 * SPEEDS  # to the left at speeds 1 to 5, then to the right
CARS_A_DRAW = 4


class FreewayState(NamedTuple):
    """State of `E` games."""

    chicken: tf.Tensor  # [E] int32 row
    walk_timer: tf.Tensor  # [E] int32 env steps until the chicken may walk
    time_left: tf.Tensor  # [E] int32 env steps
    cars: tf.Tensor  # [8, E] int32, the bit of each lane's car
    timers: tf.Tensor  # [8, E] int32 env steps until the car moves
    kinds: tf.Tensor  # [8, E] int32, 0 to 9: direction and speed


class Freeway(MinAtarGame):
    """Walk across eight lanes; the other side pays 1, and a car sends the chicken back.

    Every crossing gives the cars new speeds and directions. An episode has 2,501 env steps.
    """

    title = "Freeway"
    channels = ("chicken", "car", "speed1", "speed2", "speed3", "speed4", "speed5")
    used_actions = (NOTHING, UP, DOWN)
    game_reset_uniforms = LANES // CARS_A_DRAW
    game_step_uniforms = LANES // CARS_A_DRAW

    def start(self, num_envs: int, uniform: tf.Tensor) -> FreewayState:
        """All cars in column 0."""
        kinds = car_kinds(uniform)
        none = tf.zeros([num_envs], tf.int32)
        return FreewayState(
            none + START_ROW,
            none + WALK_STEPS,
            none + TIME_LIMIT,
            tf.ones_like(kinds),
            car_speeds(kinds),
            kinds,
        )

    def play(self, game: FreewayState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Walk, then move the cars."""
        ready = game.walk_timer == 0
        up, down = ready & (action == UP), ready & (action == DOWN)
        walk = tf.cast(down, tf.int32) - tf.cast(up, tf.int32)
        chicken = tf.clip_by_value(game.chicken + walk, 0, START_ROW)
        walk_timer = tf.where(up | down, WALK_STEPS, game.walk_timer)
        crossed = chicken == 0
        chicken = tf.where(crossed, START_ROW, chicken)
        kinds = tf.where(crossed, car_kinds(uniform), game.kinds)
        timers = tf.where(crossed, car_speeds(kinds), game.timers)

        moves = timers == 0
        right = kinds >= SPEEDS
        ahead = tf.where(
            right,
            tf.where(game.cars == bit(SIZE - 1), 1, column_shift(game.cars, 1)),
            tf.where(game.cars == 1, bit(SIZE - 1), column_shift(game.cars, -1)),
        )
        cars = tf.where(moves, ahead, game.cars)
        lane = row_numbers(1, LANES) == chicken
        # A car hits where it was as well as where it goes.
        hit = lane & (both(either(game.cars, cars), bit(COLUMN)) > 0)
        chicken = tf.where(any_row(hit), START_ROW, chicken)
        timers = tf.where(moves, car_speeds(kinds), timers - 1)
        time_left = game.time_left - 1
        walk_timer = tf.maximum(walk_timer - 1, 0)
        after = FreewayState(chicken, walk_timer, time_left, cars, timers, kinds)
        return after, tf.cast(crossed, tf.float32), time_left < 0

    def planes(self, game: FreewayState) -> list[tf.Tensor]:
        """The chicken, the cars, and a trail behind each car in the plane of its speed."""
        chicken = tf.where(row_numbers() == game.chicken, bit(COLUMN), 0)
        cars, kinds = (tf.pad(board, [[1, 1], [0, 0]]) for board in (game.cars, game.kinds))
        right = kinds >= SPEEDS
        behind = tf.where(
            right,
            tf.where(cars == 1, bit(SIZE - 1), column_shift(cars, -1)),
            tf.where(cars == bit(SIZE - 1), 1, column_shift(cars, 1)),
        )
        speeds = car_speeds(kinds)
        return [chicken, cars, *(tf.where(speeds == k, behind, 0) for k in range(1, 1 + SPEEDS))]


def car_kinds(uniform: tf.Tensor) -> tf.Tensor:
    """Kinds [8, E] int32 of new cars, from [2, E] draws, each for the decimals of four cars."""
    number = tf.cast(tf.stack(uniform) * float(CAR_KINDS**CARS_A_DRAW), tf.int32)
    digits = []
    for _ in range(CARS_A_DRAW):
        rest = tf.raw_ops.TruncateDiv(x=number, y=CAR_KINDS)
        digits, number = [*digits, number - rest * CAR_KINDS], rest
    return tf.reshape(tf.stack(digits, axis=1), [LANES, -1])


def car_speeds(kinds: tf.Tensor) -> tf.Tensor:
    """Env steps from one move of a car to the next, less one: 1 to 5."""
    return 1 + tf.where(kinds >= SPEEDS, kinds - SPEEDS, kinds)
