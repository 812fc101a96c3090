"""Time limits, automatic resets and episode statistics for environments in tensor code."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from environment.spec import EnvSpec, TensorEnvironment, TimeStep

_MEMBERS = ("spec", "reset_uniforms", "step_uniforms", "reset", "observe", "step")
_CHECKED_COPIES = 2


class DeviceState(NamedTuple):
    """All that `E` running environment copies remember between two steps.

    Attributes:
        env: The environment's own state, a nest of [E, ...] tensors.
        elapsed: [E] int32 env steps since the episode began.
        episode_return: [E] sum of the rewards since the episode began.
    """

    env: Any
    elapsed: tf.Tensor
    episode_return: tf.Tensor


class EpisodeEnd(NamedTuple):
    """The episodes that ended at a step; the numbers count only where `ended`.

    Attributes:
        ended: [E] bool, terminated or truncated.
        episode_return: [E] undiscounted sum of the episode's rewards.
        episode_length: [E] int32 env steps of the episode.
    """

    ended: tf.Tensor
    episode_return: tf.Tensor
    episode_length: tf.Tensor


def uniforms_per_step(env: TensorEnvironment) -> int:
    """Uniform draws that one copy consumes in one `step_and_reset`."""
    return env.step_uniforms + env.reset_uniforms


def reset_all(env: TensorEnvironment, uniforms: tf.Tensor) -> tuple[DeviceState, tf.Tensor]:
    """Begin an episode in every copy.

    Args:
        env: The environment.
        uniforms: [E, reset_uniforms] draws from [0, 1).

    Returns:
        The state, and the first observations [E, *obs].
    """
    env_state = env.reset(uniforms)
    copies = tf.shape(uniforms)[0] if uniforms.shape[0] is None else uniforms.shape[0]
    state = DeviceState(env_state, tf.zeros([copies], tf.int32), tf.zeros([copies]))
    return state, env.observe(env_state)


def step_and_reset(
    env: TensorEnvironment, state: DeviceState, action: tf.Tensor, uniforms: tf.Tensor
) -> tuple[DeviceState, TimeStep, EpisodeEnd]:
    """Step every copy and begin a new episode wherever one ended.

    As in Gymnasium, a step may be terminated and truncated at once; termination then decides
    that nothing follows.

    Args:
        env: The environment.
        state: What `reset_all` or the previous step returned.
        action: [E] int32 in [0, num_actions). Not checked here: validate where actions enter.
        uniforms: [E, uniforms_per_step(env)] draws from [0, 1); those of the step come first.

    Returns:
        The state after resets, the time step, and the episodes that ended with it.
    """
    split = env.step_uniforms
    stepped, reward, terminated = env.step(state.env, action, uniforms[:, :split])
    elapsed = state.elapsed + 1
    episode_return = state.episode_return + reward
    limit = env.spec.max_episode_steps
    truncated = tf.zeros_like(terminated) if limit is None else elapsed >= limit
    ended = terminated if limit is None else terminated | truncated

    fresh = env.reset(uniforms[:, split:])
    env_state = tf.nest.map_structure(
        lambda new, old: tf.where(_align(ended, new), new, old), fresh, stepped
    )
    # Shapes that an environment's ops lost (a sign, a numpy_function) would end a while loop.
    env_state = tf.nest.map_structure(_shaped_like, env_state, state.env)
    obs_shape = [*elapsed.shape, *env.spec.obs.shape]
    next_state = DeviceState(
        env_state,
        tf.where(ended, 0, elapsed),
        tf.where(ended, 0.0, episode_return),
    )
    time_step = TimeStep(
        obs=tf.ensure_shape(env.observe(env_state), obs_shape),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        next_obs=tf.ensure_shape(env.observe(stepped), obs_shape),
    )
    return next_state, time_step, EpisodeEnd(ended, episode_return, elapsed)


def _shaped_like(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(new, old.shape)


def check_environment(env: TensorEnvironment) -> None:
    """Run reset, observe and step once, eagerly, and refuse what the loops could not use.

    Args:
        env: Somebody's tensor environment.

    Raises:
        TypeError: A member of the protocol is missing or not what it should be.
        ValueError: A method returned another shape, dtype or value than promised.
    """
    name = _check_members(env)
    spec = env.spec
    rng = np.random.default_rng(0)
    draws = tf.constant(rng.random((_CHECKED_COPIES, env.reset_uniforms)), tf.float32)
    first = env.reset(draws)
    _check_state(name, "reset()", first, first)
    for one, two in zip(tf.nest.flatten(first), tf.nest.flatten(env.reset(draws)), strict=True):
        if not np.array_equal(one, two):
            raise ValueError(
                f"{name}.reset() gave two different states for the same uniforms. It must be a "
                "pure function of its argument, or runs cannot be repeated: use the uniforms it "
                "receives (reset_uniforms of them per copy) instead of drawing random numbers."
            )
    _check_observation(name, spec, env.observe(first))

    action = tf.constant([0, spec.num_actions - 1], tf.int32)
    draws = tf.constant(rng.random((_CHECKED_COPIES, env.step_uniforms)), tf.float32)
    outcome = env.step(first, action, draws)
    if not isinstance(outcome, tuple) or len(outcome) != 3:
        raise ValueError(
            f"{name}.step() returned {_describe(outcome)}, expected a tuple of three: next "
            "state, reward [E] and terminated [E]. Truncation is not the environment's task: "
            "set spec.max_episode_steps."
        )
    stepped, reward, terminated = outcome
    _check_state(name, "step()", stepped, first)
    _check_tensor(f"the reward of {name}.step()", reward, (_CHECKED_COPIES,), tf.float32)
    _check_tensor(f"terminated of {name}.step()", terminated, (_CHECKED_COPIES,), tf.bool)
    _check_finite(f"the reward of {name}.step()", reward)
    _check_observation(name, spec, env.observe(stepped))


def _align(ended: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """`ended` [E] with as many trailing axes of size 1 as it takes to select rows of `like`."""
    extra = len(like.shape) - 1
    return ended if extra == 0 else tf.reshape(ended, [-1] + [1] * extra)


def _check_members(env: TensorEnvironment) -> str:
    """The environment's name for messages, once all members of the protocol are there."""
    kind = type(env).__name__
    missing = [member for member in _MEMBERS if not hasattr(env, member)]
    if missing:
        raise TypeError(
            f"{kind} has no {', '.join(missing)}. A tensor environment needs "
            f"{', '.join(_MEMBERS)}: see environment.spec.TensorEnvironment."
        )
    for member in ("reset", "observe", "step"):
        if not callable(getattr(env, member)):
            raise TypeError(f"{kind}.{member} is {getattr(env, member)!r}, expected a method.")
    for member in ("reset_uniforms", "step_uniforms"):
        _check_integer(f"{kind}.{member}", getattr(env, member), least=0)
    spec = env.spec
    if not isinstance(spec, EnvSpec):
        raise TypeError(f"{kind}.spec is {_describe(spec)}, expected an EnvSpec.")
    if not isinstance(spec.obs, tf.TensorSpec) or not spec.obs.shape.is_fully_defined():
        raise TypeError(
            f"{kind}.spec.obs is {spec.obs!r}, expected a tf.TensorSpec whose every axis is "
            "known, without the batch axis."
        )
    _check_integer(f"{kind}.spec.action.count", spec.action.count, least=1)
    if spec.max_episode_steps is not None:
        _check_integer(f"{kind}.spec.max_episode_steps", spec.max_episode_steps, least=1)
    return kind


def _check_integer(what: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise TypeError(f"{what} is {value!r}, expected an integer of at least {least}.")


def _check_state(name: str, method: str, state: Any, like: Any) -> None:
    """Every leaf is a tensor with the batch axis first, in the form that `reset()` gave."""
    leaves = tf.nest.flatten(state)
    for leaf in leaves:
        rows = leaf.shape[0] if tf.is_tensor(leaf) and leaf.shape.rank else None
        if rows != _CHECKED_COPIES:
            raise ValueError(
                f"the state from {name}.{method} holds {_describe(leaf)}, expected only tensors "
                f"[E, ...], here with {_CHECKED_COPIES} rows, one per copy."
            )
    form = [(leaf.shape.as_list(), leaf.dtype) for leaf in leaves]
    wanted = [(leaf.shape.as_list(), leaf.dtype) for leaf in tf.nest.flatten(like)]
    try:
        tf.nest.assert_same_structure(state, like)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the state from {name}.{method} is not the same nest as that of reset(): {error}"
        ) from error
    if form != wanted:
        raise ValueError(
            f"the state from {name}.{method} has shapes and dtypes {form}, expected those of "
            f"reset(): {wanted}. A compiled loop carries one form of state."
        )


def _check_observation(name: str, spec: EnvSpec, obs: Any) -> None:
    what = f"{name}.observe()"
    _check_tensor(what, obs, (_CHECKED_COPIES, *spec.obs.shape.as_list()), spec.obs.dtype)
    _check_finite(what, obs)


def _check_tensor(what: str, value: Any, shape: tuple[Any, ...], dtype: tf.DType) -> None:
    if not tf.is_tensor(value) or tuple(value.shape) != shape or value.dtype != dtype:
        raise ValueError(
            f"{what} is {_describe(value)}, expected a {dtype.name} tensor of shape {shape} "
            f"for {shape[0]} copies."
        )


def _check_finite(what: str, value: tf.Tensor) -> None:
    if value.dtype.is_floating and not np.isfinite(value.numpy()).all():
        raise ValueError(f"{what} is not finite: {value.numpy().tolist()}.")


def _describe(value: Any) -> str:
    if tf.is_tensor(value):
        return f"a {value.dtype.name} tensor of shape {tuple(value.shape)}"
    return f"{value!r} ({type(value).__name__})"
