"""MinAtar's Asterix in tensor code."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.minatar.game import (
    DOWN,
    LEFT,
    NOTHING,
    RIGHT,
    SIZE,
    UP,
    MinAtarGame,
    bit,
    both,
    column_shift,
    number,
)

LANES = 8  # in the rows 1 to 8
SPAWN_STEPS = 10  # env steps from one arrival to the next, at first
MOVE_STEPS = 5  # env steps from one move of what is there to the next, at first
RAMP_STEPS = 100  # env steps from one increase of the speed to the next, less one
GOLD_SHARE = 1.0 / 3.0


class AsterixState(NamedTuple):
    """State of `E` games."""

    x: tf.Tensor  # [E] int32 column of the player
    y: tf.Tensor  # [E] int32 row of the player
    things: tf.Tensor  # [E, 8] int32, the bit of what is in each lane, 0 where nothing is
    right: tf.Tensor  # [E, 8] bool, it moves to the right
    gold: tf.Tensor  # [E, 8] bool, it is gold and no enemy
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

    def start(self, uniforms: tf.Tensor) -> AsterixState:
        """The player in the middle of an empty board."""
        none = tf.zeros([uniforms.shape[0]], tf.int32)
        nothing = tf.zeros([uniforms.shape[0], LANES], tf.int32)
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

    def play(self, game: AsterixState, action: tf.Tensor, uniforms: tf.Tensor) -> StepOutcome:
        """Let something arrive, move the player, then everything else."""
        spawn, move = game.spawn_timer == 0, game.move_timer == 0
        things, right, gold = _with_arrival(game, spawn, uniforms)
        x = game.x + number(action == RIGHT) - number(action == LEFT)
        y = game.y + number(action == DOWN) - number(action == UP)
        x, y = tf.clip_by_value(x, 0, SIZE - 1), tf.clip_by_value(y, 1, LANES)

        lane = tf.range(1, 1 + LANES) == y[:, tf.newaxis]
        player = tf.where(lane, bit(x)[:, tf.newaxis], 0)
        touched = both(things, player) > 0
        taken, caught = touched & gold, touched & ~gold
        things = tf.where(taken, 0, things)
        moved = tf.where(right, column_shift(things, 1), column_shift(things, -1))
        things = tf.where(move[:, tf.newaxis], moved, things)
        touched = both(things, player) > 0
        taken, caught = taken | (touched & gold), caught | (touched & ~gold)
        things = tf.where(touched & gold, 0, things)

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
        reward = tf.cast(tf.reduce_any(taken, axis=1), tf.float32)
        return after, reward, tf.reduce_any(caught, axis=1)

    def planes(self, game: AsterixState) -> list[tf.Tensor]:
        """The player, enemies, trails behind all that moves, gold."""
        things = tf.pad(game.things, [[0, 0], [1, 1]])
        right = tf.pad(game.right, [[0, 0], [1, 1]])
        gold = tf.pad(game.gold, [[0, 0], [1, 1]])
        lane = tf.range(SIZE) == game.y[:, tf.newaxis]
        player = tf.where(lane, bit(game.x)[:, tf.newaxis], 0)
        behind = tf.where(right, column_shift(things, -1), column_shift(things, 1))
        return [player, tf.where(gold, 0, things), behind, tf.where(gold, things, 0)]


def _with_arrival(
    game: AsterixState, spawn: tf.Tensor, uniforms: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Things, directions and kinds [E, 8] after an arrival in a random free lane, if one is."""
    from_left, is_gold = uniforms[:, 0] < 0.5, uniforms[:, 1] < GOLD_SHARE
    lane_bits = tf.constant([1 << lane for lane in range(LANES)])
    free = tf.reduce_sum(tf.where(game.things == 0, lane_bits, 0), axis=1)
    count = tf.reduce_sum(number(game.things == 0), axis=1)
    place = tf.cast(uniforms[:, 2] * tf.cast(count, tf.float32), tf.int32)
    for skipped in range(LANES - 1):  # clears the lowest bit `place` times
        free = tf.where(place > skipped, both(free, free - 1), free)
    lowest = both(free, -free)
    here = (lane_bits == lowest[:, tf.newaxis]) & spawn[:, tf.newaxis]
    first = tf.where(from_left, bit(0), bit(SIZE - 1))[:, tf.newaxis]
    return (
        tf.where(here, first, game.things),
        tf.where(here, from_left[:, tf.newaxis], game.right),
        tf.where(here, is_gold[:, tf.newaxis], game.gold),
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
