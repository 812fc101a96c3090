"""MinAtar's Breakout in tensor code."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.minatar.game import (
    FULL_ROW,
    LEFT,
    NOTHING,
    RIGHT,
    SIZE,
    MinAtarGame,
    row_numbers,
)

WALL = (1 << 3 * SIZE) - 1  # three rows of bricks
TOP_BRICKS = 1  # row of the first of them
PADDLE_ROW = SIZE - 1


class BreakoutState(NamedTuple):
    """State of `E` games, [E] each."""

    x: tf.Tensor  # int32 column of the ball
    y: tf.Tensor  # int32 row of the ball
    last_x: tf.Tensor  # where the ball was a step ago
    last_y: tf.Tensor
    right: tf.Tensor  # int32, 1 or -1: where the ball flies to
    down: tf.Tensor  # int32, 1 or -1
    paddle: tf.Tensor  # int32 column
    bricks: tf.Tensor  # int32, ten bits for each of the three rows, the upper row first
    struck: tf.Tensor  # bool, the ball met a brick in the step before


class Breakout(MinAtarGame):
    """Break the bricks of a wall with a ball; a lost ball ends the episode.

    The ball flies diagonally. A brick that it meets pays 1, unless it met one in the step before.
    A new wall appears when the ball comes down to the paddle's row and no brick is left.
    """

    title = "Breakout"
    channels = ("paddle", "ball", "trail", "brick")
    used_actions = (NOTHING, LEFT, RIGHT)
    game_reset_uniforms = 1  # the side on which the ball starts

    def start(self, num_envs: int, uniform: tf.Tensor) -> BreakoutState:
        """The ball in row 3, at the left or the right wall, and on its way down."""
        side = tf.cast(uniform[0] >= 0.5, tf.int32)
        x, three = side * (SIZE - 1), tf.zeros_like(side) + 3
        one = tf.ones_like(side)
        return BreakoutState(x, three, x, three, 1 - 2 * side, one, 4 * one, WALL * one, one < 0)

    def play(self, game: BreakoutState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Move the paddle, then the ball."""
        step = tf.cast(action == RIGHT, tf.int32) - tf.cast(action == LEFT, tf.int32)
        paddle = tf.clip_by_value(game.paddle + step, 0, SIZE - 1)
        x, y = game.x + game.right, game.y + game.down
        aside = (x < 0) | (x >= SIZE)
        right = tf.where(aside, -game.right, game.right)
        x = tf.clip_by_value(x, 0, SIZE - 1)

        above = y < 0
        there = (y >= TOP_BRICKS) & (y < TOP_BRICKS + 3)
        place = tf.clip_by_value((y - TOP_BRICKS) * SIZE + x, 0, 3 * SIZE - 1)
        brick = tf.bitwise.left_shift(tf.ones_like(x), place)
        met = there & (tf.bitwise.bitwise_and(game.bricks, brick) > 0)
        broken = met & ~game.struck
        bricks = tf.where(broken, game.bricks - brick, game.bricks)

        low = y == PADDLE_ROW
        bricks = tf.where(low & (bricks == 0), WALL, bricks)
        flat = low & (game.x == paddle)  # the paddle is below the ball
        corner = low & (game.x != paddle) & (x == paddle)  # the ball meets its end
        right = tf.where(corner, -right, right)
        bounced = above | met | flat | corner
        down = tf.where(bounced, -game.down, game.down)
        y = tf.where(above, 0, tf.where(bounced, game.y, y))
        after = BreakoutState(x, y, game.x, game.y, right, down, paddle, bricks, met)
        return after, tf.cast(broken, tf.float32), low & ~flat & ~corner

    def planes(self, game: BreakoutState) -> list[tf.Tensor]:
        """Paddle, ball, where the ball was, bricks."""
        row = row_numbers()

        def point(x, y):
            bit = tf.bitwise.left_shift(tf.ones_like(x), x)
            return tf.where(row == y, bit, 0)

        shift = tf.clip_by_value((row - TOP_BRICKS) * SIZE, 0, 2 * SIZE)
        wall = tf.bitwise.right_shift(game.bricks, shift)
        wall = tf.where((row >= 1) & (row < 4), tf.bitwise.bitwise_and(wall, FULL_ROW), 0)
        return [
            point(game.paddle, PADDLE_ROW),
            point(game.x, game.y),
            point(game.last_x, game.last_y),
            wall,
        ]
