"""What the five games of MinAtar share: actions, sticky actions, observations, variants."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome

SIZE = 10  # fields in a row and in a column
FULL_ROW = (1 << SIZE) - 1
NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


class GameState(NamedTuple):
    """State of `E` games."""

    game: Any  # the game's own state, a NamedTuple of [E, ...] tensors
    last_action: tf.Tensor  # [E] int32 of the six actions, the one that was carried out


class MinAtarGame:
    """A game on a board of 10 x 10 fields, seen as one plane of bools for each kind of thing.

    Boards are kept as bits: bit x of a number is the field in column x of a row.

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
            ValueError: The probability is not in [0, 1].
        """
        if not 0.0 <= sticky_actions <= 1.0:
            raise ValueError(
                f"sticky_actions is {sticky_actions!r}, expected a probability from 0 to 1: how "
                "often the action before is carried out once more."
            )
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

    def start(self, uniforms: tf.Tensor) -> Any:
        """State of new games, from [E, game_reset_uniforms] draws."""
        raise NotImplementedError

    def play(self, game: Any, action: tf.Tensor, uniforms: tf.Tensor) -> StepOutcome:
        """What follows one of the six actions [E], with [E, game_step_uniforms] draws."""
        raise NotImplementedError

    def planes(self, game: Any) -> list[tf.Tensor]:
        """The rows of every channel's board as bits, [E, 10] int32 each."""
        raise NotImplementedError

    def reset(self, uniforms: tf.Tensor) -> GameState:
        """States of new games whose last action was to do nothing."""
        return GameState(self.start(uniforms), tf.zeros([uniforms.shape[0]], tf.int32))

    def reset_after(self, state: GameState, uniforms: tf.Tensor) -> GameState:
        """States of new games that follow `state`: the last action survives, as in `minatar`."""
        return GameState(self.start(uniforms), state.last_action)

    def observe(self, state: GameState) -> tf.Tensor:
        """Boards [E, 10, 10, C] bool."""
        rows = tf.stack(self.planes(state.game), axis=-1)
        rows = barrier(rows, state.last_action[0] >= 0)[:, :, tf.newaxis]  # [E, 10, 1, C]
        column = tf.reshape(tf.range(SIZE), [SIZE, 1])
        return both(tf.bitwise.right_shift(rows, column), 1) > 0

    def step(self, state: GameState, action: tf.Tensor, uniforms: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E]; the first uniform decides about stickiness."""
        chosen = self._of_six(action)
        action = tf.where(uniforms[:, 0] < self.sticky_actions, state.last_action, chosen)
        game, reward, terminated = self.play(state.game, action, uniforms[:, 1:])
        return barrier((GameState(game, action), reward, terminated), state.last_action[0] >= 0)

    def _of_six(self, action: tf.Tensor) -> tf.Tensor:
        """The numbers [E] among the six actions of `action` [E] among those of this variant."""
        if len(self.actions) == 6:
            return action
        return tf.add_n([tf.where(action == i, a, 0) for i, a in enumerate(self.actions)])


def barrier(nest: Any, always: tf.Tensor) -> Any:
    """The same nest of tensors, computed here once.

    XLA's fusion on a CPU computes an intermediate result again in every use of it, which multiplies
    along a chain of steps. It does not look into the branches of a condition.

    Args:
        nest: Of tensors.
        always: [] bool, True, but not known to be when the program is compiled.
    """
    return tf.cond(always, lambda: nest, lambda: tf.nest.map_structure(tf.zeros_like, nest))


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
    """Fields [E] int32 of boards [E, 10]."""
    counts = tf.cast(tf.raw_ops.PopulationCount(x=board), tf.int32)
    return tf.reduce_sum(counts, axis=1)
