"""What an environment promises and what one of its steps returns."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf


class EnvSpec(NamedTuple):
    """The shape of an environment, all that a network or a buffer needs to know of it.

    Attributes:
        name: Gymnasium id or a name of our own.
        obs: Shape (without the batch axis) and dtype of one observation as the agent sees it.
        num_actions: Number of discrete actions, `A`.
        max_episode_steps: Env steps after which an episode is truncated; None for no limit.
        reward_threshold: Mean return that counts as solved; None where nobody defined one.
    """

    name: str
    obs: tf.TensorSpec
    num_actions: int
    max_episode_steps: int | None = None
    reward_threshold: float | None = None


class TimeStep(NamedTuple):
    """The outcome of one env step of `E` environment copies.

    Attributes:
        obs: [E, *obs] what the agent acts on next: after the reset, where an episode ended.
        reward: [E] reward of the step.
        terminated: [E] bool, the world ended the episode: nothing follows.
        truncated: [E] bool, a time limit ended it: the value of `next_obs` still counts.
        next_obs: [E, *obs] the observation that the step led to, before any reset.
    """

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Any


@runtime_checkable
class TensorEnvironment(Protocol):
    """An environment written in tensor code, all copies stepped together.

    Its methods are pure functions of tensors that XLA can compile. They draw no random number
    themselves: they receive uniforms in [0, 1), `reset_uniforms` (`step_uniforms`) of them for
    every copy. `environment.device` adds time limits and automatic resets.
    """

    spec: EnvSpec
    reset_uniforms: int
    step_uniforms: int

    def reset(self, uniforms: tf.Tensor) -> Any:
        """State of new episodes, a nest of [E, ...] tensors, from [E, reset_uniforms] draws."""
        ...

    def observe(self, state: Any) -> tf.Tensor:
        """Observation [E, *obs] of a state."""
        ...

    def step(
        self, state: Any, action: tf.Tensor, uniforms: tf.Tensor
    ) -> tuple[Any, tf.Tensor, tf.Tensor]:
        """Next state, reward [E] and terminated [E] after `action` [E] int32."""
        ...
