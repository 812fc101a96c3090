"""Refuses a spec that no network, buffer or loop could be built for."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import (
    ACTION_MASK,
    ActionSpace,
    Box,
    Discrete,
    EnvSpec,
    MultiDiscrete,
    num_choices,
)


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
        raise TypeError(f"{what} is {describe(spec)}, expected an EnvSpec.")
    _check_action_space(f"{what}.action", spec.action)
    _check_observation_spec(f"{what}.obs", spec)
    if spec.max_episode_steps is not None:
        check_integer(f"{what}.max_episode_steps", spec.max_episode_steps, least=1)


def check_integer(what: str, value: Any, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise TypeError(f"{what} is {value!r}, expected an integer of at least {least}.")


def describe(value: Any) -> str:
    """A value in words for messages: a tensor by its dtype and shape, a dict by its names."""
    if isinstance(value, dict):
        return f"a dict of {list(value)}"
    if tf.is_tensor(value):
        return f"a {value.dtype.name} tensor of shape {tuple(value.shape)}"
    return f"{value!r} ({type(value).__name__})"


def _check_action_space(what: str, action: ActionSpace) -> None:
    if isinstance(action, Discrete):
        check_integer(f"{what}.count", action.count, least=1)
    elif isinstance(action, MultiDiscrete):
        _check_tuple(f"{what}.counts", action.counts, "one integer for every kind of action")
        for kind, count in enumerate(action.counts):
            check_integer(f"{what}.counts[{kind}]", count, least=1)
    elif isinstance(action, Box):
        _check_bounds(what, action)
    else:
        raise TypeError(
            f"{what} is {describe(action)}, expected a Discrete, MultiDiscrete or Box of "
            "environment.spec."
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
            f"{what} has {len(action.low)} lower and {len(action.high)} upper bounds, expected as "
            "many of the one as of the other: one pair for every number of an action."
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
            f"{what} has the entries {names}, expected names (strings), among them one that is "
            f"observed: {ACTION_MASK!r} only says what is allowed."
        )
    for name, entry in spec.obs.items():
        _check_tensor_spec(f"{what}[{name!r}]", entry)
    if spec.masked:
        _check_mask_spec(f"{what}[{ACTION_MASK!r}]", spec.obs[ACTION_MASK], spec.action)


def _check_tensor_spec(what: str, entry: Any) -> None:
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
            f"({choices},): True where an action is allowed, of several kinds one after the other."
        )


def _check_tuple(what: str, value: Any, content: str) -> None:
    if not isinstance(value, tuple) or not value:
        raise TypeError(f"{what} is {value!r}, expected a tuple: {content}.")
