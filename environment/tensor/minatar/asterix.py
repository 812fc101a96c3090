"""MinAtar's Asterix in tensor code."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.fusion_barrier import fusion_barrier
from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.minatar.game import (
    DOWN,
    LEFT,
    NOTHING,
    RIGHT,
    SIZE,
    UP,
    MinAtarGame,
    any_row,
    bit,
    both,
    column_shift,
    count_bits,
    number,
    over_rows,
    row_numbers,
)

LANES = 8  # in the rows 1 to 8
SPAWN_STEPS = 10  # env steps from one arrival to the next, at first
MOVE_STEPS = 5  # env steps from one move of what is there to the next, at first
RAMP_STEPS = 100  # env steps from one increase of the speed to the next, less one
GOLD_SHARE = 1.0 / 3.0


class AsterixState(NamedTuple):
    """State of `E` games, as `Asterix.play` sees it."""

    x: tf.Tensor  # [E] int32 column of the player
    y: tf.Tensor  # [E] int32 row of the player
    things: tf.Tensor  # [8, E] int32, the bit of what is in each lane, 0 where nothing is
    right: tf.Tensor  # [8, E] bool, it moves to the right
    gold: tf.Tensor  # [8, E] bool, it is gold and no enemy
    spawn_steps: tf.Tensor  # [E] int32 as `SPAWN_STEPS`, at the present speed
    spawn_timer: tf.Tensor  # [E] int32 env steps until something arrives
    move_steps: tf.Tensor  # [E] int32 as `MOVE_STEPS`, at the present speed
    move_timer: tf.Tensor  # [E] int32 env steps until everything moves
    ramp_timer: tf.Tensor  # [E] int32 env steps until the speed increases
    ramp_index: tf.Tensor  # [E] int32 increases so far


class Asterix(MinAtarGame):
    """Collect gold, which pays 1, and avoid enemies, which end the episode.

    Gold and enemies cross the lanes from either side, at most one in a lane.
    """

    title = "Asterix"
    channels = ("player", "enemy", "trail", "gold")
    used_actions = (NOTHING, LEFT, UP, RIGHT, DOWN)
    game_step_uniforms = 3  # side, kind and lane of what arrives

    def start(self, num_envs: int, uniform: tf.Tensor) -> AsterixState:
        """The player in the middle of an empty board."""
        none = tf.zeros([num_envs], tf.int32)
        nothing = tf.zeros([LANES, num_envs], tf.int32)
        return AsterixState(
            x=none + SIZE // 2,
            y=none + SIZE // 2,
            things=nothing,
            right=nothing > 0,
            gold=nothing > 0,
            spawn_steps=none + SPAWN_STEPS,
            spawn_timer=none + SPAWN_STEPS,
            move_steps=none + MOVE_STEPS,
            move_timer=none + MOVE_STEPS,
            ramp_timer=none + RAMP_STEPS,
            ramp_index=none,
        )

    def play(self, game: AsterixState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Let something arrive, move the player, then everything else."""
        spawn, move = game.spawn_timer == 0, game.move_timer == 0
        always = game.x[0] >= 0
        things, right, gold = fusion_barrier(_with_arrival(game, always, spawn, uniform), always)
        x = game.x + number(action == RIGHT) - number(action == LEFT)
        y = game.y + number(action == DOWN) - number(action == UP)
        x, y = tf.clip_by_value(x, 0, SIZE - 1), tf.clip_by_value(y, 1, LANES)

        lane = row_numbers(1, LANES) == y
        thing = over_rows(tf.add, tf.where(lane, things, 0))  # [E], in the player's lane
        is_gold = any_row(lane & gold)
        touched = both(thing, bit(x)) > 0
        thing = tf.where(touched & is_gold, 0, thing)
        thing = tf.where(move, _after_move(thing, any_row(lane & right)), thing)
        touched |= both(thing, bit(x)) > 0
        thing = tf.where(touched & is_gold, 0, thing)
        thing, taken, caught = fusion_barrier(
            (thing, touched & is_gold, touched & ~is_gold), always
        )
        things = tf.where(move, _after_move(things, right), things)
        things = tf.where(lane, thing, things)

        after = game._replace(
            x=x,
            y=y,
            things=things,
            right=right,
            gold=gold,
            spawn_timer=tf.where(spawn, game.spawn_steps, game.spawn_timer) - 1,
            move_timer=tf.where(move, game.move_steps, game.move_timer) - 1,
        )
        after = _faster(after) if self.ramping else after
        return after, tf.cast(taken, tf.float32), caught

    def planes(self, game: AsterixState) -> list[tf.Tensor]:
        """The player, enemies, trails behind all that moves, gold."""
        things = game.things
        player = tf.where(row_numbers() == game.y, bit(game.x), 0)
        behind = _after_move(things, ~game.right)
        boards = [tf.where(game.gold, 0, things), behind, tf.where(game.gold, things, 0)]
        return [player, *(tf.pad(board, [[1, 1], [0, 0]]) for board in boards)]


def _after_move(things: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.where(right, column_shift(things, 1), column_shift(things, -1))


def _with_arrival(
    game: AsterixState, always: tf.Tensor, spawn: tf.Tensor, uniform: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Things, directions and kinds [8, E] after an arrival in a random free lane, if one is."""
    from_left, is_gold = uniform[0] < 0.5, uniform[1] < GOLD_SHARE
    lane_bits = tf.constant([[1 << lane] for lane in range(LANES)])
    free = over_rows(tf.add, tf.where(game.things == 0, lane_bits, 0))
    count = count_bits(free[tf.newaxis])
    place = tf.cast(uniform[2] * tf.cast(count, tf.float32), tf.int32)
    for skipped in range(LANES - 1):  # clears the lowest bit `place` times
        free = tf.where(place > skipped, both(free, free - 1), free)
    lowest = fusion_barrier(both(free, -free), always)
    here = (lane_bits == lowest) & spawn
    first = tf.where(from_left, bit(0), bit(SIZE - 1))
    return (
        tf.where(here, first, game.things),
        tf.where(here, from_left, game.right),
        tf.where(here, is_gold, game.gold),
    )


def _faster(game: AsterixState) -> AsterixState:
    """More arrivals with every increase of the speed, faster moves with every second one."""
    slow = (game.spawn_steps > 1) | (game.move_steps > 1)
    due = slow & (game.ramp_timer < 0)
    quicker = due & (game.move_steps > 1) & (game.ramp_index % 2 == 1)
    return game._replace(
        move_steps=game.move_steps - number(quicker),
        spawn_steps=game.spawn_steps - number(due & (game.spawn_steps > 1)),
        ramp_index=game.ramp_index + number(due),
        ramp_timer=tf.where(due, RAMP_STEPS, game.ramp_timer - number(slow)),
    )
