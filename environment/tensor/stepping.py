"""Time limits, automatic resets and episode statistics for environments in tensor code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.environment.check import check_integer, check_spec, describe
from kytolly.environment.spec import (
    ACTION_MASK,
    ActionSpace,
    Box,
    Discrete,
    EnvSpec,
    MultiDiscrete,
    TensorEnvironment,
    TimeStep,
)

_MEMBERS = ("spec", "reset_uniforms", "step_uniforms", "reset", "observe", "step")
_CHECKED_COPIES = 2
_FAR = 10.0  # stands for infinity where a bound of a Box is tried


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


def reset_all(env: TensorEnvironment, uniforms: tf.Tensor) -> tuple[DeviceState, Any]:
    """Begin an episode in every copy.

    Args:
        env: The environment.
        uniforms: [E, reset_uniforms] draws from [0, 1).

    Returns:
        The state, and the first observations [E, *obs], a dict of them where the spec's is.
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
        action: As `env.spec.action` says: [E] or [E, D] int32, or [E, D] float32. Not checked
            here: validate where actions enter.
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
    next_state = DeviceState(
        env_state,
        tf.where(ended, 0, elapsed),
        tf.where(ended, 0.0, episode_return),
    )
    time_step = TimeStep(
        obs=_observed(env, env_state, elapsed),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        next_obs=_observed(env, stepped, elapsed),
    )
    return next_state, time_step, EpisodeEnd(ended, episode_return, elapsed)


def _observed(env: TensorEnvironment, env_state: Any, per_copy: tf.Tensor) -> Any:
    """Observations of a state, with the shapes that the spec promises."""
    return tf.nest.map_structure(
        lambda spec, value: tf.ensure_shape(value, [*per_copy.shape, *spec.shape]),
        env.spec.obs,
        env.observe(env_state),
    )


def _shaped_like(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(new, old.shape)


def check_environment(env: TensorEnvironment) -> None:
    """Run reset, observe and step once, eagerly, and refuse what the loops could not use.

    The step is taken with the extreme actions: the first and the last of those that are allowed,
    of several kinds together, or the lower and the upper bounds.

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
    obs = env.observe(first)
    _check_observation(name, spec, obs)

    action = _extreme_actions(spec, obs)
    draws = tf.constant(rng.random((_CHECKED_COPIES, env.step_uniforms)), tf.float32)
    outcome = env.step(first, action, draws)
    if not isinstance(outcome, tuple) or len(outcome) != 3:
        raise ValueError(
            f"{name}.step() returned {describe(outcome)}, expected a tuple of three: next "
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
        check_integer(f"{kind}.{member}", getattr(env, member), least=0)
    check_spec(f"{kind}.spec", env.spec)
    return kind


def _check_state(name: str, method: str, state: Any, like: Any) -> None:
    """Every leaf is a tensor with the batch axis first, in the form that `reset()` gave."""
    leaves = tf.nest.flatten(state)
    for leaf in leaves:
        rows = leaf.shape[0] if tf.is_tensor(leaf) and leaf.shape.rank else None
        if rows != _CHECKED_COPIES:
            raise ValueError(
                f"the state from {name}.{method} holds {describe(leaf)}, expected only tensors "
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
    if not isinstance(spec.obs, dict):
        _check_entry(what, spec.obs, obs)
        return
    if not isinstance(obs, dict) or set(obs) != set(spec.obs):
        raise ValueError(
            f"{what} is {describe(obs)}, expected {describe(spec.obs)}, the entries of spec.obs."
        )
    for entry, entry_spec in spec.obs.items():
        _check_entry(f"{what}[{entry!r}]", entry_spec, obs[entry])
    if spec.masked:
        _check_mask(f"{what}[{ACTION_MASK!r}]", spec.action, obs[ACTION_MASK].numpy())


def _check_entry(what: str, spec: tf.TensorSpec, value: Any) -> None:
    _check_tensor(what, value, (_CHECKED_COPIES, *spec.shape.as_list()), spec.dtype)
    _check_finite(what, value)


def _check_mask(what: str, action: ActionSpace, mask: np.ndarray) -> None:
    for kind, allowed in enumerate(_kinds(action, mask)):
        empty = np.flatnonzero(~allowed.any(axis=1))
        if empty.size:
            where = f" of kind {kind}" if isinstance(action, MultiDiscrete) else ""
            raise ValueError(
                f"{what} allows no action{where} in row {empty[0]}: "
                f"{mask[empty[0]].tolist()}, expected at "
                "least one True, or the agent has nothing to choose from. Where the choice does "
                "not matter, as after the end of an episode, allow any."
            )


def _kinds(action: ActionSpace, mask: np.ndarray) -> list[np.ndarray]:
    """The masks of the single kinds, [E, count] each."""
    counts = action.counts if isinstance(action, MultiDiscrete) else (mask.shape[1],)
    return np.split(mask, np.cumsum(counts)[:-1], axis=1)


def _extreme_actions(spec: EnvSpec, obs: Any) -> tf.Tensor:
    """The lowest action for the first copy, the highest for the second."""
    action = spec.action
    if isinstance(action, Box):
        low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
        lowest = np.where(np.isfinite(low), low, np.minimum(high, 0.0) - _FAR)
        highest = np.where(np.isfinite(high), high, np.maximum(low, 0.0) + _FAR)
        return tf.constant(np.stack([lowest, highest]), tf.float32)
    everything = np.ones((_CHECKED_COPIES, spec.num_actions), bool)
    mask = obs[ACTION_MASK].numpy() if spec.masked else everything
    ends = [
        (np.argmax(allowed[0]), np.flatnonzero(allowed[1])[-1]) for allowed in _kinds(action, mask)
    ]
    chosen = tf.constant(np.transpose(ends), tf.int32)
    return chosen[:, 0] if isinstance(action, Discrete) else chosen


def _check_tensor(what: str, value: Any, shape: tuple[Any, ...], dtype: tf.DType) -> None:
    if not tf.is_tensor(value) or tuple(value.shape) != shape or value.dtype != dtype:
        raise ValueError(
            f"{what} is {describe(value)}, expected a {dtype.name} tensor of shape {shape} "
            f"for {shape[0]} copies."
        )


def _check_finite(what: str, value: tf.Tensor) -> None:
    if value.dtype.is_floating and not np.isfinite(value.numpy()).all():
        raise ValueError(f"{what} is not finite: {value.numpy().tolist()}.")
