"""Refuses an environment in tensor code that no network, buffer or loop could be built for."""

from __future__ import annotations

import inspect
import numbers
import traceback
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import (
    ACTION_MASK,
    ActionSpace,
    Box,
    Discrete,
    EnvSpec,
    MultiDiscrete,
    TensorEnvironment,
    num_choices,
)

_MEMBERS = ("spec", "reset_uniforms", "step_uniforms", "reset", "observe", "step")
_NUM_ENVS = 2  # that are stepped to check the methods
_FAR = 10.0  # stands for infinity where a bound of a Box is tried


def check_environment(env: TensorEnvironment) -> None:
    """Run reset, observe and step once, eagerly, and refuse what the loops could not use.

    The step is taken with the extreme actions: the first and the last of those that are allowed,
    of all components of a MultiDiscrete at once, or the lower and the upper bounds.

    Args:
        env: Somebody's tensor environment.

    Raises:
        TypeError: A member of the protocol is missing or not what it should be.
        ValueError: A method returned another shape, dtype or value than promised.
    """
    name = _check_members(env)
    spec = env.spec
    rng = np.random.default_rng(0)
    draws = tf.constant(rng.random((_NUM_ENVS, env.reset_uniforms)), tf.float32)
    first = _call(env, "reset", draws)
    _check_state(name, "reset()", first, first)
    again = env.reset(draws)
    for one, two in zip(tf.nest.flatten(first), tf.nest.flatten(again), strict=True):
        if not np.array_equal(one, two):
            raise ValueError(
                f"{name}.reset() gave two different states for the same random numbers. It must "
                "be a pure function of its argument, or runs cannot be repeated: use the numbers "
                "that it receives (reset_uniforms of them for each environment), and draw none."
            )
    obs = _call(env, "observe", first)
    _check_observation(name, spec, obs)

    action = _extreme_actions(spec, obs)
    draws = tf.constant(rng.random((_NUM_ENVS, env.step_uniforms)), tf.float32)
    outcome = _call(env, "step", first, action, draws)
    if not isinstance(outcome, tuple) or len(outcome) != 3:
        raise ValueError(
            f"{name}.step() returned {_description(outcome)}, expected a tuple of three: next "
            "state, reward [E] and terminated [E]. Truncation is not the environment's task: "
            "set spec.max_episode_steps."
        )
    stepped, reward, terminated = outcome
    _check_state(name, "step()", stepped, first)
    _check_tensor(f"the reward of {name}.step()", reward, (_NUM_ENVS,), tf.float32)
    _check_tensor(f"terminated of {name}.step()", terminated, (_NUM_ENVS,), tf.bool)
    _check_observation(name, spec, env.observe(stepped))


def _call(env: TensorEnvironment, method: str, *inputs: object) -> Any:
    """The value that a method returns; ValueError where it asks Python what a tensor holds."""
    function = getattr(env, method)
    try:
        tf.function(function, autograph=False).get_concrete_function(*inputs)
    except tf.errors.OperatorNotAllowedInGraphError as error:
        name = type(env).__name__
        raise ValueError(
            f"{name}.{method}() uses a tensor where Python needs a value, as in `if`, `while`, "
            f"`for` or `bool()`{_line_of(error, function)}. It is compiled for all environments "
            "at once, so a choice is made for each of them: write tf.where(condition, this, that), "
            "and & or | for `and` or `or`."
        ) from error
    except (NotImplementedError, TypeError, AttributeError) as error:
        if "symbolic" not in str(error).lower():
            raise
        raise ValueError(
            f"{type(env).__name__}.{method}() hands a tensor to NumPy or Python"
            f"{_line_of(error, function)}, which cannot be compiled. Use TensorFlow's functions, "
            "such as tf.where."
        ) from error
    return function(*inputs)


def _line_of(error: BaseException, function: Callable) -> str:
    """The line of a function at which an error arose, for a message; empty if not known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f" (line {lines[-1]} of {code.co_filename})" if lines else ""


def check_spec(what: str, spec: EnvSpec) -> None:
    """Refuse a spec whose parts are not what `EnvSpec` says, or do not fit together.

    Args:
        what: The spec's name for messages, such as "MyEnvironment.spec".
        spec: Somebody's spec.

    Raises:
        TypeError: A part is not of the expected type or range.
        ValueError: Parts do not fit together: bounds, or a mask and the actions.
    """
    if not isinstance(spec, EnvSpec):
        raise TypeError(f"{what} is {_description(spec)}, expected an EnvSpec.")
    _check_action_space(f"{what}.action", spec.action)
    _check_observation_spec(f"{what}.obs", spec)
    if spec.max_episode_steps is not None:
        _check_integer(f"{what}.max_episode_steps", spec.max_episode_steps, least=1)


def _check_integer(what: str, value: object, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise TypeError(f"{what} is {value!r}, expected an integer of at least {least}.")


def _is_tensor(value: object) -> TypeGuard[tf.Tensor]:
    return tf.is_tensor(value)


def _description(value: object) -> str:
    """A value in words for messages: a tensor by its dtype and shape, a dict by its names."""
    if isinstance(value, dict):
        return f"a dict of {list(value)}"
    if _is_tensor(value):
        return f"a {value.dtype.name} tensor of shape {tuple(value.shape)}"
    return f"{value!r} ({type(value).__name__})"


def _check_action_space(what: str, action: ActionSpace) -> None:
    if isinstance(action, Discrete):
        _check_integer(f"{what}.count", action.count, least=1)
    elif isinstance(action, MultiDiscrete):
        _check_tuple(f"{what}.counts", action.counts, "one integer for every component")
        for index, count in enumerate(action.counts):
            _check_integer(f"{what}.counts[{index}]", count, least=1)
    elif isinstance(action, Box):
        _check_bounds(what, action)
    else:
        raise TypeError(
            f"{what} is {_description(action)}, expected a Discrete, MultiDiscrete or Box of "
            "kytolly.environment.spec."
        )


def _check_bounds(what: str, action: Box) -> None:
    for side in ("low", "high"):
        bounds = getattr(action, side)
        _check_tuple(f"{what}.{side}", bounds, "one float for every number of an action")
        for index, bound in enumerate(bounds):
            if not isinstance(bound, (float, np.floating)) or np.isnan(bound):
                raise TypeError(
                    f"{what}.{side}[{index}] is {bound!r}, expected a float (infinite where "
                    "there is no bound)."
                )
    if len(action.low) != len(action.high):
        raise ValueError(
            f"{what} has {len(action.low)} lower and {len(action.high)} upper bounds, expected "
            "equally many: one pair for every number of an action."
        )
    for index, (low, high) in enumerate(zip(action.low, action.high, strict=True)):
        if not np.float32(low) < np.float32(high):
            raise ValueError(
                f"{what} allows number {index} from {low!r} to {high!r}, expected low < high in "
                "float32. Leave out a number that the agent cannot choose."
            )


def _check_observation_spec(what: str, spec: EnvSpec) -> None:
    if not isinstance(spec.obs, dict):
        _check_tensor_spec(what, spec.obs)
        return
    names = list(spec.obs)
    if not all(isinstance(name, str) for name in names) or not set(names) - {ACTION_MASK}:
        raise TypeError(
            f"{what} has the entries {names}, expected names (strings), at least one of them "
            f"beside {ACTION_MASK!r}, which only says what is allowed."
        )
    for name, entry in spec.obs.items():
        _check_tensor_spec(f"{what}[{name!r}]", entry)
    if spec.masked:
        _check_mask_spec(f"{what}[{ACTION_MASK!r}]", spec.obs[ACTION_MASK], spec.action)


def _check_tensor_spec(what: str, entry: object) -> None:
    if not isinstance(entry, tf.TensorSpec) or not entry.shape.is_fully_defined():
        raise TypeError(
            f"{what} is {entry!r}, expected a tf.TensorSpec whose every axis is known, without "
            "the batch axis."
        )


def _check_mask_spec(what: str, mask: tf.TensorSpec, action: ActionSpace) -> None:
    if isinstance(action, Box):
        raise ValueError(
            f"{what} says which actions are allowed, but the actions are a Box, expected Discrete "
            "or MultiDiscrete: no single number of a range can be forbidden. Give the entry "
            "another name, or number the actions."
        )
    choices = num_choices(action)
    if mask.dtype != tf.bool or tuple(mask.shape) != (choices,):
        raise ValueError(
            f"{what} is {mask.dtype.name} of shape {tuple(mask.shape)}, expected bool of shape "
            f"({choices},): True where an action is allowed, the components of a MultiDiscrete in "
            "a row."
        )


def _check_tuple(what: str, value: object, content: str) -> None:
    if not isinstance(value, tuple) or not value:
        raise TypeError(f"{what} is {value!r}, expected a tuple: {content}.")


def _check_members(env: TensorEnvironment) -> str:
    """Refuse an environment without all members of the protocol; its name for messages."""
    name = type(env).__name__
    missing = [member for member in _MEMBERS if not hasattr(env, member)]
    if missing:
        raise TypeError(
            f"{name} has no {', '.join(missing)}. A tensor environment needs "
            f"{', '.join(_MEMBERS)}: see kytolly.environment.spec.TensorEnvironment."
        )
    for member in ("reset", "observe", "step"):
        if not callable(getattr(env, member)):
            raise TypeError(f"{name}.{member} is {getattr(env, member)!r}, expected a method.")
    for member in ("reset_uniforms", "step_uniforms"):
        _check_integer(f"{name}.{member}", getattr(env, member), least=0)
    check_spec(f"{name}.spec", env.spec)
    return name


def _check_state(name: str, method: str, state: object, like: object) -> None:
    """Refuse a state whose leaves are not tensors [E, ...] in the form that `reset()` gave."""
    leaves = tf.nest.flatten(state)
    for leaf in leaves:
        rows = leaf.shape[0] if tf.is_tensor(leaf) and leaf.shape.rank else None
        if rows != _NUM_ENVS:
            raise ValueError(
                f"the state from {name}.{method} holds {_description(leaf)}, expected only tensors "
                f"[E, ...], here with {_NUM_ENVS} rows, one for each environment."
            )
    forms = [(leaf.shape.as_list(), leaf.dtype) for leaf in leaves]
    expected = [(leaf.shape.as_list(), leaf.dtype) for leaf in tf.nest.flatten(like)]
    try:
        tf.nest.assert_same_structure(state, like)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the state from {name}.{method} is not the same nest as that of reset(): {error}"
        ) from error
    if forms != expected:
        raise ValueError(
            f"the state from {name}.{method} has shapes and dtypes {forms}, expected those of "
            f"reset(): {expected}. A compiled loop needs the same at every step."
        )


def _check_observation(name: str, spec: EnvSpec, obs: object) -> None:
    what = f"{name}.observe()"
    if not isinstance(spec.obs, dict):
        _check_entry(what, spec.obs, obs)
        return
    if not isinstance(obs, dict) or set(obs) != set(spec.obs):
        raise ValueError(
            f"{what} is {_description(obs)}, expected {_description(spec.obs)}, the entries of "
            "spec.obs."
        )
    for entry, entry_spec in spec.obs.items():
        _check_entry(f"{what}[{entry!r}]", entry_spec, obs[entry])
    if spec.masked:
        _check_mask(f"{what}[{ACTION_MASK!r}]", spec.action, obs[ACTION_MASK].numpy())


def _check_entry(what: str, spec: tf.TensorSpec, value: object) -> None:
    _check_tensor(what, value, (_NUM_ENVS, *spec.shape.as_list()), spec.dtype)


def _check_mask(what: str, action: ActionSpace, mask: np.ndarray) -> None:
    for component, allowed in enumerate(_component_masks(action, mask)):
        empty = np.flatnonzero(~allowed.any(axis=1))
        if empty.size:
            where = f" of component {component}" if isinstance(action, MultiDiscrete) else ""
            raise ValueError(
                f"{what} allows no action{where} in row {empty[0]}: "
                f"{mask[empty[0]].tolist()}, expected at "
                "least one True, or the agent has nothing to choose from. Where the choice does "
                "not matter, as after the end of an episode, allow all."
            )


def _component_masks(action: ActionSpace, mask: np.ndarray) -> list[np.ndarray]:
    """The masks of the components of an action, [E, count] each."""
    counts = action.counts if isinstance(action, MultiDiscrete) else (mask.shape[1],)
    return np.split(mask, np.cumsum(counts)[:-1], axis=1)


def _extreme_actions(spec: EnvSpec, obs: Any) -> tf.Tensor:
    """The lowest action for the first environment, the highest for the second."""
    action = spec.action
    if isinstance(action, Box):
        low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
        lowest = np.where(np.isfinite(low), low, np.minimum(high, 0.0) - _FAR)
        highest = np.where(np.isfinite(high), high, np.maximum(low, 0.0) + _FAR)
        return tf.constant(np.stack([lowest, highest]), tf.float32)
    everything = np.ones((_NUM_ENVS, spec.num_actions), bool)
    mask = obs[ACTION_MASK].numpy() if spec.masked else everything
    ends = [
        (np.argmax(allowed[0]), np.flatnonzero(allowed[1])[-1])
        for allowed in _component_masks(action, mask)
    ]
    chosen = tf.constant(np.array(ends).T, tf.int32)
    return chosen[:, 0] if isinstance(action, Discrete) else chosen


def _check_tensor(what: str, value: object, shape: tuple[int | None, ...], dtype: tf.DType) -> None:
    if not _is_tensor(value) or tuple(value.shape) != shape or value.dtype != dtype:
        raise ValueError(
            f"{what} is {_description(value)}, expected a {dtype.name} tensor of shape {shape} "
            f"for {shape[0]} environments."
        )
    if value.dtype.is_floating and not np.isfinite(value.numpy()).all():
        raise ValueError(f"{what} is not finite: {value.numpy().tolist()}.")
