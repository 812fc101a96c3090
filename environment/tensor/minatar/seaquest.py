"""MinAtar's Seaquest in tensor code."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.fusion_barrier import fusion_barrier
from kytolly.environment.spec import StepOutcome
from kytolly.environment.tensor.minatar import enemies
from kytolly.environment.tensor.minatar.game import (
    DOWN,
    FIRE,
    LEFT,
    RIGHT,
    SIZE,
    UP,
    MinAtarGame,
    any_row,
    bit,
    both,
    column_shift,
    count_bits,
    either,
    number,
    row_numbers,
    update_barrier,
)

ROWS = 8  # in which enemies and divers swim, 1 to 8
OXYGEN = 200
CREW = 6  # divers that pay off
COOL_DOWN_STEPS = 5  # env steps from one shot to the next
ENEMY_STEPS = 20  # env steps from one enemy to the next, at first
DIVER_STEPS = 30  # env steps from one diver to the next
DIVER_MOVE_STEPS = 6  # of which all divers move in the same; 30 is a multiple
MOVE_TIMER = 5  # of enemies, at first: they move every six env steps
FASTEST_MOVE_TIMER = 2
SUBMARINE_SHARE = 1.0 / 3.0


class SeaquestState(NamedTuple):
    """State of `E` games. Boards hold the bits of their rows; sides are left and right."""

    x: tf.Tensor  # [E] int32 column of the player's submarine
    y: tf.Tensor  # [E] int32 row
    faces_right: tf.Tensor  # [E] bool
    surfaced: tf.Tensor  # [E] bool, it has taken oxygen and has not dived since
    oxygen: tf.Tensor  # [E] int32 env steps under water
    crew: tf.Tensor  # [E] int32 divers on board
    shot_timer: tf.Tensor  # [E] int32 env steps until it may shoot
    bullets: tf.Tensor  # [2, 10, E] int32 boards of the player's bullets by side
    enemy_bullets: tf.Tensor  # [2, 10, E] int32 boards by side
    divers: tf.Tensor  # [2, 10, E] int32 boards by side
    fish: tf.Tensor  # [10, E] uint64, see `enemies`
    submarines: tf.Tensor  # [10, E] uint64
    shots: enemies.Shots  # of the submarines
    rightward: tf.Tensor  # [10, E] bool, the enemies of the row swim to the right
    enemy_timer: tf.Tensor  # [E] int32 env steps until an enemy comes
    enemy_steps: tf.Tensor  # [E] int32 as `ENEMY_STEPS`, at the present difficulty
    diver_timer: tf.Tensor  # [E] int32 env steps until a diver comes
    move_timer: tf.Tensor  # [E] int32 as `MOVE_TIMER`, at the present difficulty
    ramp_index: tf.Tensor  # [E] int32 increases of the difficulty


class Seaquest(MinAtarGame):
    """Shoot fish and submarines, which pay 1 each, and bring up divers before the oxygen ends.

    Coming up without a diver ends the episode, with six it pays up to 10, by the oxygen that is
    left; each time one diver leaves, with six all and, as in `minatar`, one more. Enemies and
    their bullets end the episode. Each time the submarine comes up, enemies come more often.
    """

    title = "Seaquest"
    channels = (
        "sub_front",
        "sub_back",
        "friendly_bullet",
        "trail",
        "enemy_bullet",
        "enemy_fish",
        "enemy_sub",
        "oxygen_gauge",
        "diver_gauge",
        "diver",
    )
    used_actions = tuple(range(6))
    game_step_uniforms = 5  # an enemy's side, kind and row; a diver's side and row

    def start(self, num_envs: int, uniform: tf.Tensor) -> SeaquestState:
        """The submarine at the surface of an empty sea."""
        none = tf.zeros([num_envs], tf.int32)
        board = tf.zeros([SIZE, num_envs], tf.int32)
        sides = tf.zeros([2, SIZE, num_envs], tf.int32)
        return SeaquestState(
            x=none + SIZE // 2,
            y=none,
            faces_right=none > 0,
            surfaced=none == 0,
            oxygen=none + OXYGEN,
            crew=none,
            shot_timer=none,
            bullets=sides,
            enemy_bullets=sides,
            divers=sides,
            fish=tf.cast(board, tf.uint64),
            submarines=tf.cast(board, tf.uint64),
            shots=enemies.Shots(tf.cast(board, tf.uint64), tf.cast(board, tf.uint64)),
            rightward=board > 0,
            enemy_timer=none + ENEMY_STEPS,
            enemy_steps=none + ENEMY_STEPS,
            diver_timer=none + DIVER_STEPS,
            move_timer=none + MOVE_TIMER,
            ramp_index=none,
        )

    def play(self, game: SeaquestState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Arrivals, the player, bullets, divers, submarines, their bullets, fish, oxygen."""
        always = game.oxygen[0] <= OXYGEN
        divers_move = game.diver_timer % DIVER_MOVE_STEPS == 1

        def once(after, *more):
            return update_barrier((after, *more), (game, *([None] * len(more))), always)

        before = game
        game = _with_new_diver(_with_new_enemy(game, uniform[:3]), uniform[3:])
        game = update_barrier(_after_action(game, action), before, always)
        game, hits = once(*_after_bullets(game, always))
        place = tf.where(row_numbers() == game.y, bit(game.x), 0)
        game = update_barrier(_after_divers(game, place, divers_move, always), game, always)
        game, more_hits, caught = once(*_after_enemies(game, place, always))
        game, pay, ended = _after_breathing(game, self.ramping)
        after = game._replace(
            enemy_timer=game.enemy_timer - 1,
            diver_timer=game.diver_timer - 1,
            shot_timer=tf.maximum(game.shot_timer - 1, 0),
        )
        return after, tf.cast(hits + more_hits + pay, tf.float32), caught | ended

    def planes(self, game: SeaquestState) -> list[tf.Tensor]:
        """The boards in the order of `channels`."""
        row = row_numbers()
        front = bit(game.x)
        back = tf.where(game.faces_right, column_shift(front, -1), column_shift(front, 1))
        level, gauges = row == game.y, row == SIZE - 1
        fish, submarines = enemies.in_columns(game.fish), enemies.in_columns(game.submarines)
        trail = enemies.to_side(either(fish, submarines), ~game.rightward)
        trail = either(
            trail, either(column_shift(game.divers[0], 1), column_shift(game.divers[1], -1))
        )
        oxygen = bit(tf.maximum(game.oxygen, 0) * SIZE // OXYGEN) - 1
        full = bit(SIZE - 1)  # the gauge of divers fills from column 8 to the left
        crew = full - tf.bitwise.right_shift(full, tf.maximum(game.crew, 0))
        return [
            tf.where(level, front, 0),
            tf.where(level, back, 0),
            either(game.bullets[0], game.bullets[1]),
            trail,
            either(game.enemy_bullets[0], game.enemy_bullets[1]),
            fish,
            submarines,
            tf.where(gauges, oxygen, 0),
            tf.where(gauges, crew, 0),
            either(game.divers[0], game.divers[1]),
        ]


def _random_row(uniform: tf.Tensor) -> tf.Tensor:
    """Whether a row [10, E] is the one that a draw [E] chooses from 1 to 8."""
    return row_numbers() == 1 + tf.cast(uniform * ROWS, tf.int32)


def _side(right: tf.Tensor) -> tf.Tensor:
    """Whether a side [2, 1, E] is the one of `right` [E]."""
    return tf.stack([~right, right])[:, tf.newaxis]


def _flight(boards: tf.Tensor) -> tf.Tensor:
    """Boards [2, 10, E] of what moves to the left and to the right, a column on."""
    return enemies.to_side(boards, tf.constant([[[False]], [[True]]]))


def _with_new_enemy(game: SeaquestState, uniform: tf.Tensor) -> SeaquestState:
    """The game after a fish or submarine came, unless others swim against it in its row."""
    from_left, is_submarine = uniform[0] < 0.5, uniform[1] < SUBMARINE_SHARE
    due = game.enemy_timer == 0
    row = _random_row(uniform[2])
    against = (either(game.fish, game.submarines) != 0) & (game.rightward != from_left)
    comes = row & due & ~against
    new = tf.where(comes, enemies.first_column(from_left), 0)
    fish = tf.where(is_submarine, 0, new)
    submarine = new - fish
    return game._replace(
        fish=either(game.fish, enemies.with_timer(fish, game.move_timer)),
        submarines=either(game.submarines, enemies.with_timer(submarine, game.move_timer)),
        shots=enemies.with_shooters(game.shots, submarine),
        rightward=tf.where(comes, from_left, game.rightward),
        enemy_timer=tf.where(due, game.enemy_steps, game.enemy_timer),
    )


def _with_new_diver(game: SeaquestState, uniform: tf.Tensor) -> SeaquestState:
    """The game after a diver came."""
    from_left, due = uniform[0] < 0.5, game.diver_timer == 0
    row = _random_row(uniform[1]) & due
    new = tf.where(row, enemies.first_column(from_left), 0)
    divers = either(game.divers, tf.where(_side(from_left), new, 0))
    return game._replace(divers=divers, diver_timer=tf.where(due, DIVER_STEPS, game.diver_timer))


def _after_action(game: SeaquestState, action: tf.Tensor) -> SeaquestState:
    """The game after the player shot or moved."""
    fire = (action == FIRE) & (game.shot_timer == 0)
    left, right = action == LEFT, action == RIGHT
    shot = tf.where((row_numbers() == game.y) & fire, bit(game.x), 0)
    y = game.y + number(action == DOWN) - number(action == UP)
    return game._replace(
        x=tf.clip_by_value(game.x + number(right) - number(left), 0, SIZE - 1),
        y=tf.clip_by_value(y, 0, ROWS),
        faces_right=right | (game.faces_right & ~left),
        shot_timer=tf.where(fire, COOL_DOWN_STEPS, game.shot_timer),
        bullets=either(game.bullets, tf.where(_side(game.faces_right), shot, 0)),
    )


def _after_bullets(game: SeaquestState, always: tf.Tensor) -> tuple[SeaquestState, tf.Tensor]:
    """The game after the player's bullets moved, and the enemies [E] that they hit."""
    bullets = _flight(game.bullets)
    flying = either(bullets[0], bullets[1])
    fish_hit = both(flying, enemies.in_columns(game.fish))
    submarines_hit = both(flying - fish_hit, enemies.in_columns(game.submarines))
    fish_hit, submarines_hit = fusion_barrier((fish_hit, submarines_hit), always)
    hit = fish_hit + submarines_hit
    after = game._replace(
        bullets=both(bullets, tf.bitwise.invert(hit)),
        fish=enemies.without_oldest(game.fish, fish_hit),
        submarines=enemies.without_oldest(game.submarines, submarines_hit),
        shots=enemies.shots_without_oldest(game.shots, submarines_hit),
    )
    return after, count_bits(hit)


def _after_divers(
    game: SeaquestState, place: tf.Tensor, move: tf.Tensor, always: tf.Tensor
) -> SeaquestState:
    """The game after divers moved and came on board; where one has room, the newer of two.

    A diver from each side can meet at the submarine. They came 30 env steps apart, so the newer
    is nearer to the column in which it came.
    """
    met = both(tf.where(move, either(game.divers, _flight(game.divers)), game.divers), place) > 0
    left, right = fusion_barrier([any_row(side) for side in tf.unstack(met)], always)
    full, one = game.crew >= CREW, (game.crew == CREW - 1) & left & right
    left &= ~full & ((game.x >= SIZE // 2) | ~one)
    right &= ~full & ((game.x < SIZE // 2) | ~one)
    gone = tf.bitwise.invert(tf.where(tf.stack([left, right])[:, tf.newaxis], place, 0))
    divers = both(game.divers, gone)
    divers = both(tf.where(move, _flight(divers), divers), gone)
    return game._replace(divers=divers, crew=game.crew + number(left) + number(right))


def _after_enemies(
    game: SeaquestState, place: tf.Tensor, always: tf.Tensor
) -> tuple[SeaquestState, tf.Tensor, tf.Tensor]:
    """The game after enemies moved and shot, how many [E] swam into bullets, and the end [E]."""
    flying = either(game.bullets[0], game.bullets[1])
    touching = enemies.in_columns(either(game.submarines, game.fish))
    moving = enemies.movers(game.submarines)
    submarines = enemies.to_side(moving, game.rightward)
    fish = enemies.to_side(enemies.movers(game.fish), game.rightward)
    touching = either(touching, either(submarines, fish))
    submarines_hit = both(submarines, flying)
    fish_hit = both(fish, flying - submarines_hit)
    hit = submarines_hit + fish_hit

    moving = fusion_barrier(enemies.shots_of_oldest(game.shots, moving), always)
    shots, shooting = enemies.shots_after_move(game.shots, moving, submarines_hit, game.rightward)
    to_right = tf.stack([~game.rightward, game.rightward])
    bullets = either(game.enemy_bullets, tf.where(to_right, shooting, 0))
    flown = _flight(bullets)
    dangers = either(bullets, flown)
    touching = either(touching, either(dangers[0], dangers[1]))
    after = game._replace(
        bullets=both(game.bullets, tf.bitwise.invert(hit)),
        enemy_bullets=flown,
        submarines=enemies.after_move(
            game.submarines, submarines - submarines_hit, game.move_timer
        ),
        fish=enemies.after_move(game.fish, fish - fish_hit, game.move_timer),
        shots=shots,
    )
    return after, count_bits(hit), any_row(both(touching, place) > 0)


def _after_breathing(
    game: SeaquestState, ramping: bool
) -> tuple[SeaquestState, tf.Tensor, tf.Tensor]:
    """The game after oxygen was used or taken, the pay [E] for divers, and the end [E]."""
    below = game.y > 0
    comes_up = ~below & ~game.surfaced
    lost = comes_up & (game.crew == 0)
    saved = comes_up & (game.crew != 0)
    paid = saved & (game.crew == CREW)
    oxygen = tf.where(below, game.oxygen - 1, game.oxygen)
    after = game._replace(
        oxygen=tf.where(saved, OXYGEN, oxygen),
        surfaced=~below & (game.surfaced | saved),
        crew=tf.where(paid, 0, game.crew) - number(saved),
    )
    if ramping:
        more = saved & (game.enemy_steps > 1)
        faster = saved & (game.move_timer > FASTEST_MOVE_TIMER) & (game.ramp_index % 2 == 1)
        after = after._replace(
            enemy_steps=game.enemy_steps - number(more),
            move_timer=game.move_timer - number(faster),
            ramp_index=game.ramp_index + number(more | faster),
        )
    pay = tf.where(paid, oxygen * SIZE // OXYGEN, 0)
    return after, pay, lost | (below & (oxygen < 0))
