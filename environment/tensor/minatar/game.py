"""What the five games of MinAtar share: actions, sticky actions, observations, variants."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.environment.fusion_barrier import fusion_barrier
from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome

SIZE = 10  # fields in a row and in a column
FULL_ROW = (1 << SIZE) - 1
NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


FLAG = "true or false"
MOST_STEPS = 2**30


def require(name: str, value: Any, fits: bool, wanted: str) -> None:
    """Refuse an argument of a game that does not fit."""
    if not fits:
        raise ValueError(f"{name} of a MinAtar game is {value!r}, expected {wanted}.")


class GameState(NamedTuple):
    """State of `E` games."""

    game: Any  # the game's own state, a NamedTuple of [E, ...] tensors
    last_action: tf.Tensor  # [E] int32 of the six actions, the one that was carried out


class MinAtarGame:
    """A game on a board of 10 x 10 fields, seen as one plane of bools for each kind of thing.

    Boards are kept as bits: bit x of a number is the field in column x of a row. Within a game
    the axis of environments is the last one, so that a processor steps many of them at once: the
    [E, 10] rows of a state are [10, E] there. XLA turns nothing round in a loop; it keeps states
    and observations in memory as the game leaves them.

    Source: Young & Tian 2019, arXiv:1903.03176, in the rules of version 1 of the PyPI package
    `minatar`, with which the tests compare every step.
    """

    title: str  # of the game, as in "MinAtar/Breakout-v0"
    channels: tuple[str, ...]  # what each plane shows
    used_actions: tuple[int, ...]  # that the game knows, of the six
    game_reset_uniforms = 0
    game_step_uniforms = 0

    def __init__(
        self,
        *,
        minimal_actions: bool = False,
        sticky_actions: float = 0.1,
        difficulty_ramping: bool = True,
        max_episode_steps: int | None = None,
    ):
        """Make the game, by default as the paper plays it.

        Args:
            minimal_actions: Only the actions that the game knows (v1), instead of all six (v0).
            sticky_actions: Probability that the action before is carried out once more.
            difficulty_ramping: Whether the game becomes faster as it goes on.
            max_episode_steps: Env steps after which an episode is truncated; None for no limit.

        Raises:
            ValueError: An argument is not what it should be.
        """
        limit = max_episode_steps
        require("minimal_actions", minimal_actions, isinstance(minimal_actions, bool), FLAG)
        require(
            "difficulty_ramping", difficulty_ramping, isinstance(difficulty_ramping, bool), FLAG
        )
        is_number = type(sticky_actions) in (int, float)  # a bool is none
        is_share = is_number and 0.0 <= sticky_actions <= 1.0
        require("sticky_actions", sticky_actions, is_share, "a probability from 0 to 1")
        is_limit = limit is None or (type(limit) is int and 1 <= limit <= MOST_STEPS)
        wanted = f"a whole number of env steps from 1 to {MOST_STEPS:,}, or none"
        require("max_episode_steps", limit, is_limit, wanted)
        self.actions = self.used_actions if minimal_actions else tuple(range(6))
        self.sticky_actions, self.ramping = sticky_actions, difficulty_ramping
        self.reset_uniforms = self.game_reset_uniforms
        self.step_uniforms = 1 + self.game_step_uniforms
        self.spec = EnvSpec(
            name=f"MinAtar/{self.title}-v{int(minimal_actions)}",
            obs=tf.TensorSpec([SIZE, SIZE, len(self.channels)], tf.bool),
            action=Discrete(len(self.actions)),
            max_episode_steps=max_episode_steps,
            grids=("",),
        )

    @classmethod
    def minimal(
        cls,
        *,
        sticky_actions: float = 0.1,
        difficulty_ramping: bool = True,
        max_episode_steps: int | None = None,
    ) -> MinAtarGame:
        """The game with only the actions that it knows, as version 1 of its id has them."""
        return cls(
            minimal_actions=True,
            sticky_actions=sticky_actions,
            difficulty_ramping=difficulty_ramping,
            max_episode_steps=max_episode_steps,
        )

    def start(self, num_envs: int, uniform: tf.Tensor) -> Any:
        """State of new games, from [game_reset_uniforms, E] draws; `E` is the last axis."""
        raise NotImplementedError

    def play(self, game: Any, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """What follows one of the six actions [E], with [game_step_uniforms, E] draws."""
        raise NotImplementedError

    def planes(self, game: Any) -> list[tf.Tensor]:
        """The rows of every channel's board as bits, [10, E] int32 each."""
        raise NotImplementedError

    def reset(self, uniform: tf.Tensor) -> GameState:
        """States of new games whose last action was to do nothing."""
        return GameState(self._new_games(uniform), tf.zeros([uniform.shape[0]], tf.int32))

    def reset_after(self, state: GameState, uniform: tf.Tensor) -> GameState:
        """States of new games that follow `state`: the last action survives, as in `minatar`."""
        return GameState(self._new_games(uniform), state.last_action)

    def observe(self, state: GameState) -> tf.Tensor:
        """Boards [E, 10, 10, C] bool."""
        # Half as wide as int32: a processor compares twice as many fields at once.
        planes = [tf.cast(plane, tf.int16) for plane in self.planes(envs_last(state.game))]
        rows = fusion_barrier(tf.stack(planes, axis=1), state.last_action[0] >= 0)  # [10, C, E]
        columns = tf.constant([1 << x for x in range(SIZE)], tf.int16, [SIZE, 1, 1])
        return envs_first(both(rows[:, tf.newaxis], columns) > 0)

    def step(self, state: GameState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E]; the first number decides about stickiness."""
        always = state.last_action[0] >= 0
        draws = fusion_barrier(tf.unstack(uniform, axis=1), always)
        sticks = draws[0] < self.sticky_actions
        action = tf.where(sticks, state.last_action, self._of_six(action))
        before = envs_last(state.game)
        outcome = self.play(before, action, draws[1:])
        game, reward, terminated = update_barrier(outcome, (before, None, None), always)
        return GameState(envs_first(game), action), reward, terminated

    def _new_games(self, uniform: tf.Tensor) -> Any:
        num_envs: Any = uniform.shape[0]
        return envs_first(self.start(num_envs, tf.transpose(uniform)))

    def _of_six(self, action: tf.Tensor) -> tf.Tensor:
        """The numbers [E] among the six actions of `action` [E] among those of this variant."""
        if len(self.actions) == 6:
            return action
        return tf.add_n([tf.where(action == i, a, 0) for i, a in enumerate(self.actions)])


def envs_last(nest: Any) -> Any:
    """The same nest of tensors [E, ...] with the axis of environments last: [..., E]."""
    return tf.nest.map_structure(lambda t: tf.transpose(t, [*range(1, t.shape.rank), 0]), nest)


def envs_first(nest: Any) -> Any:
    """The same nest of tensors [..., E] with the axis of environments first: [E, ...]."""

    def with_envs_first(t):
        last = t.shape.rank - 1
        return tf.transpose(t, [last, *range(last)])

    return tf.nest.map_structure(with_envs_first, nest)


def row_numbers(first: int = 0, count: int = SIZE) -> tf.Tensor:
    """The numbers [count, 1] int32 of rows from `first` on."""
    return tf.range(first, first + count)[:, tf.newaxis]


def update_barrier(after: Any, before: Any, always: tf.Tensor) -> Any:
    """`after`, of which all that differs from `before` is computed here once."""
    old, new = tf.nest.flatten(before), tf.nest.flatten(after)
    changes = [i for i, (one, other) in enumerate(zip(old, new, strict=True)) if one is not other]
    for i, value in zip(changes, fusion_barrier([new[i] for i in changes], always), strict=True):
        new[i] = value
    return tf.nest.pack_sequence_as(after, new)


def bit(x: tf.Tensor | int) -> tf.Tensor:
    """The field in column `x`, as a row of bits: int32 of the shape of `x`."""
    return tf.bitwise.left_shift(tf.ones_like(x), x)


def both(one: tf.Tensor, other: tf.Tensor | int) -> tf.Tensor:
    """Fields that are in both of two rows of bits."""
    return tf.bitwise.bitwise_and(one, other)


def either(one: tf.Tensor, other: tf.Tensor | int) -> tf.Tensor:
    """Fields that are in one of two rows of bits, or in both."""
    return tf.bitwise.bitwise_or(one, other)


def column_shift(row: tf.Tensor, columns: int) -> tf.Tensor:
    """Rows of bits moved to the right by 1 or -1; what leaves the board is gone."""
    if columns < 0:
        return tf.bitwise.right_shift(row, 1)
    return both(tf.bitwise.left_shift(row, 1), FULL_ROW)


def number(condition: tf.Tensor) -> tf.Tensor:
    """1 where it is so, else 0, int32."""
    return tf.cast(condition, tf.int32)


def count_bits(board: tf.Tensor) -> tf.Tensor:
    """Fields [E] int32 of boards [10, E]."""
    return over_rows(tf.add, tf.cast(tf.raw_ops.PopulationCount(x=board), tf.int32))


def over_rows(combine: Callable[[Any, Any], Any], board: tf.Tensor) -> tf.Tensor:
    """All rows [n, E] in one [E]. XLA's reduction along the first axis takes one at a time."""
    return functools.reduce(combine, tf.unstack(board))


def any_row(board: tf.Tensor) -> tf.Tensor:
    """Whether [E] it is so in any of the rows [n, E] bool."""
    return over_rows(tf.logical_or, board)
