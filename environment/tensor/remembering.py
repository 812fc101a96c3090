"""An environment in tensor code that keeps its agent's memory.

It is written with each action, shown with each observation, and cleared with each episode.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.environment.memory import FIRST, MEMORY, PREVIOUS_ACTION, PREVIOUS_REWARD, as_entries
from kytolly.environment.memory_spec import action_width, remembering_spec
from kytolly.environment.spec import Box, Discrete, EnvSpec, StepOutcome, TensorEnvironment
from kytolly.environment.tensor.stepping import next_episodes


class Remembered(NamedTuple):
    """The environment's state, and what the agent is shown beside its observation."""

    env: Any
    memory: tf.Tensor  # [E, S]
    first: tf.Tensor  # [E] bool, the episode begins
    previous: dict[str, tf.Tensor]  # the previous action [E, D] and reward [E, 1], if shown


class RememberingEnv:
    """A tensor environment whose actions are pairs: the action, and the memory [E, S] after it.

    Args:
        env: The environment.
        units: `S`, numbers that the agent remembers.
        shows_previous: Show the previous action and reward too.
    """

    def __init__(self, env: TensorEnvironment, units: int, shows_previous: bool = False):
        self.env, self.units, self.shows_previous = env, units, shows_previous
        self.spec = remembering_spec(env.spec, units, shows_previous)
        self.reset_uniforms, self.step_uniforms = env.reset_uniforms, env.step_uniforms

    def reset(self, uniform: tf.Tensor) -> Remembered:
        """Episodes that begin without a memory."""
        return self._begin(self.env.reset(uniform), uniform.shape[0])

    def reset_after(self, state: Remembered, uniform: tf.Tensor) -> Remembered:
        """As `reset`, of an environment whose episodes hand something on."""
        return self._begin(next_episodes(self.env, state.env, uniform), uniform.shape[0])

    def observe(self, state: Remembered) -> dict[str, tf.Tensor]:
        """The environment's observation with the added entries."""
        obs = as_entries(self.env.observe(state.env))
        return obs | {MEMORY: state.memory, FIRST: state.first} | state.previous

    def step(self, state: Remembered, action: Any, uniform: tf.Tensor) -> StepOutcome:
        """A step of the environment; the memory is what came with the action."""
        to_env, memory = action
        after, reward, terminated = self.env.step(state.env, to_env, uniform)
        previous = {}
        if self.shows_previous:
            shown = shown_action(self.env.spec, to_env)
            previous = {PREVIOUS_ACTION: shown, PREVIOUS_REWARD: reward[:, tf.newaxis]}
        first = tf.zeros_like(state.first)
        return Remembered(after, memory, first, previous), reward, terminated

    def _begin(self, env_state: Any, count: int | None) -> Remembered:
        memory, first = tf.zeros([count, self.units]), tf.ones([count], tf.bool)
        previous = {}
        if self.shows_previous:
            width = action_width(self.env.spec)
            previous = {
                PREVIOUS_ACTION: tf.zeros([count, width]),
                PREVIOUS_REWARD: tf.zeros([count, 1]),
            }
        return Remembered(env_state, memory, first, previous)


def shown_action(spec: EnvSpec, action: tf.Tensor) -> tf.Tensor:
    """[E, D] numbers of actions [E, ...]: one-hot where they are discrete."""
    if isinstance(spec.action, Box):
        return action
    if isinstance(spec.action, Discrete):
        return tf.one_hot(action, spec.action.count)
    parts = [tf.one_hot(action[:, place], count) for place, count in enumerate(spec.action.counts)]
    return tf.concat(parts, axis=-1)
