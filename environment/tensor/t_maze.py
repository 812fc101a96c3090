"""The T-maze in tensor code: a sign at the entrance says where to turn, a corridor later."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome

EAST, NORTH, WEST, SOUTH = range(4)
MAX_LENGTH = 1_000_000  # fields; below 2**24 all positions are exact


class MazeState(NamedTuple):
    """State of `E` mazes."""

    position: tf.Tensor  # [E] int32 fields east of the entrance; at the end: the junction
    goal_north: tf.Tensor  # [E] bool, the goal is north of the junction and not south of it
    step: tf.Tensor  # [E] int32 env steps since the start; on the way to the junction


class TMaze:
    """A corridor with a sign at its entrance, and a junction at its end.

    The agent begins at the entrance, where it sees 011 if the goal is north of the junction and
    110 if it is south. It sees 101 on the way and 010 at the junction: [E, 3]. Actions: 0 east,
    1 north, 2 west, 3 south. Reward: 4 for the turn to the goal, -0.1 for the other, both of which
    terminate the episode, and -0.1 for every step against a wall. The best return is 4; who
    forgets the sign earns 1.95 on average.

    A walk at random seldom comes to the end of a long corridor; then nothing is to be learned.
    `PassiveTMaze` pays for walking, so that memory alone makes it hard. The paper names no time
    limit; here it is ten times the shortest way, unless `max_episode_steps` says more or less.

    Source: Bakker 2001, "Reinforcement Learning with Long Short-Term Memory", section 4.
    """

    reset_uniforms, step_uniforms = 1, 0
    reward_goal, reward_miss, reward_wall = 4.0, -0.1, -0.1

    def __init__(self, *, length: int = 10, max_episode_steps: int | None = None):
        """Make the maze.

        Args:
            length: Fields from the entrance to the junction.
            max_episode_steps: Env steps after which an episode is truncated; None for ten times
                the shortest way.

        Raises:
            ValueError: An argument is not what it should be.
        """
        _require("length", length)
        if max_episode_steps is None:
            max_episode_steps = 10 * (length + 1)
        _require("max_episode_steps", max_episode_steps)
        self.length = length
        self.spec = EnvSpec(
            name="kytolly/TMaze-v0",
            obs=tf.TensorSpec([3], tf.float32),
            action=Discrete(4),
            max_episode_steps=max_episode_steps,
        )

    def reset(self, uniform: tf.Tensor) -> MazeState:
        """States [E] at the entrance; the goal is north where the draw is below 0.5."""
        start = tf.zeros([uniform.shape[0]], tf.int32)
        return MazeState(start, uniform[:, 0] < 0.5, start)

    def observe(self, state: MazeState) -> tf.Tensor:
        """Observations [E, 3]: the sign at the entrance, 101 on the way, 010 at the junction."""
        start, junction = state.position == 0, state.position == self.length
        seen = [
            tf.logical_not(junction) & tf.logical_not(start & state.goal_north),
            start | junction,
            tf.logical_not(junction) & (tf.logical_not(start) | state.goal_north),
        ]
        return tf.cast(tf.stack(seen, axis=-1), tf.float32)

    def step(self, state: MazeState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E] after a move."""
        position, turns, right = self._move(state, action)
        blocked = (position == state.position) & tf.logical_not(turns)
        reward = tf.where(turns, tf.where(right, self.reward_goal, self.reward_miss), 0.0)
        reward += tf.where(blocked, self.reward_wall, 0.0)
        return MazeState(position, state.goal_north, state.step + 1), reward, turns

    def _move(self, state: MazeState, action: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Positions [E] after a move; [E] bool: it was a turn at the junction; one to the goal."""
        move = tf.cast(action == EAST, tf.int32) - tf.cast(action == WEST, tf.int32)
        position = tf.clip_by_value(state.position + move, 0, self.length)
        north = action == NORTH
        turns = (state.position == self.length) & (north | (action == SOUTH))
        return position, turns, turns & (north == state.goal_north)


class PassiveTMaze(TMaze):
    """A T-maze in which every step that is not the way to the junction costs.

    At the first step the agent sees (0, 1) if the goal is north of the junction and (0, -1) if it
    is south; then (0, 0) on the way and (1, 0) at the junction: [E, 2]. Actions are those of
    `TMaze`. An episode terminates after length + 1 steps, of which the last pays 1 for a turn to
    the goal. Each step before pays -1 / length where the agent is behind a walk straight east. The
    best return is 1; who forgets the sign earns 0.5 on average.

    Source: Ni et al. 2023, "When Do Transformers Shine in RL? Decoupling Memory from Credit
    Assignment", arXiv:2307.03864, the passive T-maze.
    """

    def __init__(self, *, length: int = 10):
        """Make the maze.

        Args:
            length: Fields from the entrance to the junction.

        Raises:
            ValueError: It is not what it should be.
        """
        super().__init__(length=length)
        self.spec = self.spec._replace(
            name="kytolly/PassiveTMaze-v0",
            obs=tf.TensorSpec([2], tf.float32),
            max_episode_steps=length + 1,
        )

    def observe(self, state: MazeState) -> tf.Tensor:
        """Observations [E, 2]: the agent is at the junction; the sign, in the first step."""
        sign = tf.where(state.step == 0, tf.where(state.goal_north, 1.0, -1.0), 0.0)
        return tf.stack([tf.cast(state.position == self.length, tf.float32), sign], axis=-1)

    def step(self, state: MazeState, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward [E] and terminated [E] after a move."""
        position, _, right = self._move(state, action)
        step = state.step + 1
        behind = tf.where(position < step, -1.0 / self.length, 0.0)
        last = step > self.length
        reward = tf.where(last, tf.cast(right, tf.float32), behind)
        return MazeState(position, state.goal_north, step), reward, last


def _require(name: str, value: object) -> None:
    """Refuse what is no number of fields or env steps."""
    if type(value) is not int or not 1 <= value <= MAX_LENGTH:
        raise ValueError(
            f"{name} is {value!r}, expected a whole number from 1 to {MAX_LENGTH:,}. Give it as "
            f"in --env-kwargs {name}=100."
        )
