"""MinAtar's Space Invaders in tensor code."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.minatar.game import (
    FIRE,
    LEFT,
    NOTHING,
    RIGHT,
    SIZE,
    MinAtarGame,
    any_row,
    bit,
    both,
    column_shift,
    count_bits,
    either,
    number,
    over_rows,
    row_numbers,
)

CANNON_ROW = SIZE - 1
WAVE_ROWS = 4
WAVE = ((1 << 6) - 1) << 2  # the aliens of one row: columns 2 to 7
COOL_DOWN_STEPS = 5  # env steps from one shot of the cannon to the next
ALIEN_SHOT_STEPS = 10
MOVE_STEPS = 12  # env steps from one move of the aliens to the next, at most, in the first wave
FASTEST_MOVE_STEPS = 6  # of a later wave


class SpaceInvadersState(NamedTuple):
    """State of `E` games. Boards hold the bits of their rows."""

    cannon: tf.Tensor  # [E] int32 column
    bullets: tf.Tensor  # [10, E] int32 board, those of the player
    bombs: tf.Tensor  # [10, E] int32 board, the bullets of the aliens
    aliens: tf.Tensor  # [10, E] int32 board
    direction: tf.Tensor  # [E] int32, 1 where the aliens move to the right, or -1
    move_steps: tf.Tensor  # [E] int32 as `MOVE_STEPS`, in the present wave
    move_timer: tf.Tensor  # [E] int32 env steps until the aliens move
    alien_shot_timer: tf.Tensor  # [E] int32 env steps until an alien shoots
    shot_timer: tf.Tensor  # [E] int32 env steps until the cannon may shoot


class SpaceInvaders(MinAtarGame):
    """Shoot aliens, each of which pays 1; a bullet or an alien that arrives ends the episode.

    The fewer aliens are left, the faster they move. The alien that shoots is the lowest of the
    column that is nearest to the cannon, of two equally near ones the left.
    """

    title = "SpaceInvaders"
    channels = ("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet")
    used_actions = (NOTHING, LEFT, RIGHT, FIRE)

    def start(self, num_envs: int, uniform: tf.Tensor) -> SpaceInvadersState:
        """A full wave that moves to the left."""
        none = tf.zeros([num_envs], tf.int32)
        empty = tf.zeros([SIZE, num_envs], tf.int32)
        return SpaceInvadersState(
            cannon=none + SIZE // 2,
            bullets=empty,
            bombs=empty,
            aliens=empty + full_wave(),
            direction=none - 1,
            move_steps=none + MOVE_STEPS,
            move_timer=none + MOVE_STEPS,
            alien_shot_timer=none + ALIEN_SHOT_STEPS,
            shot_timer=none,
        )

    def play(self, game: SpaceInvadersState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Shoot or move, then move bullets and aliens, let an alien shoot, and count the hits."""
        fire = (action == FIRE) & (game.shot_timer == 0)
        cannon = game.cannon + number(action == RIGHT) - number(action == LEFT)
        cannon = tf.clip_by_value(cannon, 0, SIZE - 1)
        place = tf.where(row_numbers() == CANNON_ROW, bit(cannon), 0)
        bullets = either(game.bullets, tf.where(fire, place, 0))
        bullets = tf.pad(bullets[1:], [[0, 1], [0, 0]])  # a row up
        bombs = tf.pad(game.bombs[:-1], [[1, 0], [0, 0]])  # a row down

        moves = game.move_timer == 0
        aliens, direction, landed = _aliens_after_move(game, moves)
        hit = either(either(game.aliens, aliens), bombs)
        hit = any_row(both(hit, place) > 0)
        move_timer = tf.minimum(count_bits(game.aliens), game.move_steps)
        move_timer = tf.where(moves, move_timer, game.move_timer)

        shoots = game.alien_shot_timer == 0
        shot = _shot_of_the_nearest(aliens, cannon)
        bombs = either(bombs, tf.where(shoots, shot, 0))
        killed = both(aliens, bullets)
        kills = count_bits(killed)
        aliens, bullets = aliens - killed, bullets - killed
        cleared = over_rows(either, aliens) == 0
        harder = cleared & (game.move_steps > FASTEST_MOVE_STEPS) & self.ramping
        after = SpaceInvadersState(
            cannon=cannon,
            bullets=bullets,
            bombs=bombs,
            aliens=tf.where(cleared, full_wave(), aliens),
            direction=direction,
            move_steps=game.move_steps - number(harder),
            move_timer=move_timer - 1,
            alien_shot_timer=tf.where(shoots, ALIEN_SHOT_STEPS, game.alien_shot_timer) - 1,
            shot_timer=tf.maximum(tf.where(fire, COOL_DOWN_STEPS, game.shot_timer) - 1, 0),
        )
        return after, tf.cast(kills, tf.float32), hit | (moves & landed)

    def planes(self, game: SpaceInvadersState) -> list[tf.Tensor]:
        """The cannon, aliens, aliens that move to the left, to the right, bullets of both."""
        cannon = tf.where(row_numbers() == CANNON_ROW, bit(game.cannon), 0)
        left = game.direction < 0
        return [
            cannon,
            game.aliens,
            tf.where(left, game.aliens, 0),
            tf.where(left, 0, game.aliens),
            game.bullets,
            game.bombs,
        ]


def full_wave() -> tf.Tensor:
    """Board [10, 1] int32 of all aliens of a new wave."""
    return tf.where(row_numbers() < WAVE_ROWS, WAVE, 0)


def _aliens_after_move(
    game: SpaceInvadersState, moves: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Aliens [10, E] and direction [E] where they move, and whether [E] they turn in the last row.

    They turn at a wall, and come a row down instead of going aside.
    """
    edge = tf.where(game.direction < 0, bit(0), bit(SIZE - 1))
    turns = any_row(both(game.aliens, edge) > 0)
    lower = tf.concat([game.aliens[-1:], game.aliens[:-1]], axis=0)
    aside = tf.where(
        game.direction < 0, column_shift(game.aliens, -1), column_shift(game.aliens, 1)
    )
    aliens = tf.where(turns, lower, aside)
    aliens = tf.where(moves, aliens, game.aliens)
    direction = tf.where(moves & turns, -game.direction, game.direction)
    return aliens, direction, turns & (game.aliens[CANNON_ROW] > 0)


def _shot_of_the_nearest(aliens: tf.Tensor, cannon: tf.Tensor) -> tf.Tensor:
    """Board [10, E] of the one bullet of the alien that shoots at the cannon."""
    columns = over_rows(either, aliens)  # [E], those in which there are aliens
    left = both(columns, 2 * bit(cannon) - 1)  # with the cannon's own
    right = columns - left
    near_right = both(right, -right)
    for shift in (1, 2, 4, 8):
        left = either(left, tf.bitwise.right_shift(left, shift))
    near_left = left - tf.bitwise.right_shift(left, 1)
    # Of the columns x and y, x is at least as near if x + y >= 2 * cannon.
    prefers_left = (near_right == 0) | (near_left * near_right >= bit(2 * cannon))
    there = both(aliens, tf.where(prefers_left, near_left, near_right))
    lowest = over_rows(tf.maximum, tf.where(there > 0, row_numbers(), -1))
    return tf.where(row_numbers() == lowest, there, 0)
