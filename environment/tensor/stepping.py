"""Time limits, automatic resets and episode statistics for environments in tensor code."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.environment.spec import TensorEnvironment


class DeviceState(NamedTuple):
    """All that `E` running environments remember between two steps."""

    env: Any  # the environment's own state, a nest of [E, ...] tensors
    elapsed: tf.Tensor  # [E] int32 env steps since the episode began
    episode_return: tf.Tensor  # [E] sum of the rewards since the episode began


class TimeStep(NamedTuple):
    """The outcome of one step of `E` environments."""

    obs: Any  # [E, *obs] what the agent acts on next: after the reset, where an episode ended
    reward: tf.Tensor  # [E] of the step
    terminated: tf.Tensor  # [E] bool, the world ended the episode: nothing follows
    truncated: tf.Tensor  # [E] bool, a time limit ended it: the value of `next_obs` still counts
    next_obs: Any  # [E, *obs] what the step led to, before any reset
    ended: tf.Tensor  # [E] bool, terminated or truncated
    episode_return: tf.Tensor  # [E] undiscounted sum of the episode's rewards so far
    episode_length: tf.Tensor  # [E] int32 env steps of the episode so far


def uniforms_per_step(env: TensorEnvironment) -> int:
    """Draws of one environment in one `step_and_reset`."""
    return env.step_uniforms + env.reset_uniforms


def reset_all(env: TensorEnvironment, uniform: tf.Tensor) -> tuple[DeviceState, Any]:
    """State and first observations [E, *obs] of new episodes, from [E, reset_uniforms] draws."""
    env_state = env.reset(uniform)
    num_envs = uniform.shape[0]
    state = DeviceState(env_state, tf.zeros([num_envs], tf.int32), tf.zeros([num_envs]))
    return state, env.observe(env_state)


def next_episodes(env: TensorEnvironment, state: Any, uniform: tf.Tensor) -> Any:
    """States of the episodes that follow on a state, from [E, reset_uniforms] draws.

    An environment whose episodes hand something on says what in `reset_after`.
    """
    reset_after = getattr(env, "reset_after", lambda _, draws: env.reset(draws))
    return reset_after(state, uniform)


def step_and_reset(
    env: TensorEnvironment, state: DeviceState, action: tf.Tensor, uniform: tf.Tensor
) -> tuple[DeviceState, TimeStep]:
    """Step every environment and begin a new episode wherever one ended.

    As in Gymnasium, a step may be terminated and truncated at once: nothing follows it.

    Args:
        env: The environment.
        state: What `reset_all` or the previous step returned.
        action: What `env.spec.action` asks for; not checked here.
        uniform: [E, uniforms_per_step(env)] draws from [0, 1); those of the step come first.

    Returns:
        The state after resets, and the time step.
    """
    split = env.step_uniforms
    after, reward, terminated = env.step(state.env, action, uniform[:, :split])
    elapsed = state.elapsed + 1
    episode_return = state.episode_return + reward
    limit = env.spec.max_episode_steps
    truncated = tf.zeros_like(terminated) if limit is None else elapsed >= limit
    ended = terminated if limit is None else terminated | truncated

    def observe(env_state: Any) -> Any:
        def with_shape(spec: tf.TensorSpec, value: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(value, [*elapsed.shape, *spec.shape])

        return tf.nest.map_structure(with_shape, env.spec.obs, env.observe(env_state))

    def restart(new: tf.Tensor, old: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(ended, [-1] + [1] * (len(new.shape) - 1))
        # A shape that an op of the environment lost would end a while loop.
        return tf.ensure_shape(tf.where(rows, new, old), before.shape)

    fresh = next_episodes(env, after, uniform[:, split:])
    env_state = tf.nest.map_structure(restart, fresh, after, state.env)
    steps, total = tf.where(ended, 0, elapsed), tf.where(ended, 0.0, episode_return)
    next_state = DeviceState(env_state, steps, total)
    seen, next_obs = observe(env_state), observe(after)
    step = TimeStep(seen, reward, terminated, truncated, next_obs, ended, episode_return, elapsed)
    return next_state, step
