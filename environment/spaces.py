"""From Gymnasium's spaces to the observations and actions that the agents handle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from environment.faults import EnvironmentFault
from environment.spec import Discrete, EnvSpec

_FLATTEN = "wrap the environment in gymnasium.wrappers.FlattenObservation, which makes it a Box"
_OBS_ADVICE = {
    spaces.Dict: _FLATTEN,
    spaces.Tuple: _FLATTEN,
    spaces.MultiBinary: _FLATTEN,
    spaces.MultiDiscrete: _FLATTEN,
}
_ACTION_ADVICE = {
    spaces.Box: "wrap the environment in gymnasium.wrappers.DiscretizeAction, which chooses among "
    "a grid of actions",
    spaces.MultiDiscrete: "number the combinations, as one Discrete, in a "
    "gymnasium.wrappers.TransformAction",
    spaces.MultiBinary: "number the combinations, as one Discrete, in a "
    "gymnasium.wrappers.TransformAction",
}
_FEW = 64  # numbers that Python sums faster than NumPy checks them


class ObservationForm:
    """How observations of a space reach the agent: Box as an array, Discrete as one-hot.

    A Box of uint8 stays uint8, any other becomes float32; a Box without axes gets one of size 1.

    Args:
        space: The observation space of one copy.
        name: The environment's name, for messages.

    Attributes:
        spec: Shape and dtype that the agent sees.
        dtype: The same dtype in NumPy.
        shape: The same shape as a tuple.
        ready_shape: Shape of an array that can be copied into rows without `encoded`; None where
            every observation has to be looked at.
    """

    def __init__(self, space: spaces.Space, name: str):
        self.name = name
        self._start = 0
        if isinstance(space, spaces.Box):
            self._raw_shape: tuple[int, ...] | None = space.shape
            self.shape = space.shape or (1,)
            self.dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
        elif isinstance(space, spaces.Discrete):
            self._raw_shape, self.shape = None, (int(space.n),)
            self.dtype, self._start = np.dtype(np.float32), int(space.start)
        else:
            raise ValueError(_refusal(name, "observations", space, "Box or Discrete", _OBS_ADVICE))
        self.ready_shape = self._raw_shape if self.dtype == np.float32 else None
        self.spec = tf.TensorSpec(self.shape, self.dtype)

    def encoded(self, raw: Any, rows: int | None = None) -> np.ndarray:
        """New array [*obs] of one raw observation, or [rows, *obs] of a batch of them."""
        batch = () if rows is None else (rows,)
        values = np.asarray(raw)
        expected = batch if self._raw_shape is None else batch + self._raw_shape
        if values.shape != expected:
            raise EnvironmentFault(
                f"{self.name} returned an observation of shape {values.shape}, but its "
                f"observation space has shape {expected}."
            )
        if self._raw_shape is not None:
            return self._cast(values).reshape(batch + self.shape)
        return self._one_hot(values)

    def _cast(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == self.dtype:
            return values.copy()
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # `all_finite` reports what results
                result = values.astype(self.dtype)
        except (TypeError, ValueError) as error:
            raise EnvironmentFault(
                f"{self.name} returned an observation that is not numbers: {error}."
            ) from error
        if self.dtype == np.uint8 and not np.array_equal(result, values):
            raise EnvironmentFault(
                f"{self.name} returned a {values.dtype} observation with numbers that its uint8 "
                "observation space cannot hold. Declare the space with the dtype of what is in it."
            )
        return result

    def _one_hot(self, values: np.ndarray) -> np.ndarray:
        index = values - self._start
        count = self.shape[0]
        if values.dtype.kind not in "iu" or np.any((index < 0) | (index >= count)):
            raise EnvironmentFault(
                f"{self.name} returned the observation {values}, expected an integer from "
                f"{self._start} to {self._start + count - 1}."
            )
        return (index[..., np.newaxis] == np.arange(count)).astype(np.float32)


def discrete_actions(space: spaces.Space, name: str) -> tuple[int, int]:
    """Number of actions of a Discrete space, and the number of its first action."""
    if not isinstance(space, spaces.Discrete):
        raise ValueError(_refusal(name, "actions", space, "Discrete", _ACTION_ADVICE))
    return int(space.n), int(space.start)


def host_spec(
    name: str, form: ObservationForm, num_actions: int, registered: RegisteredSpec | None
) -> EnvSpec:
    """The spec of an environment of which Gymnasium knows limit and threshold, or nothing."""
    if registered is None:
        return EnvSpec(name, form.spec, Discrete(num_actions))
    threshold = registered.reward_threshold
    return EnvSpec(
        name,
        form.spec,
        Discrete(num_actions),
        registered.max_episode_steps,
        None if threshold is None else float(threshold),
    )


def all_finite(values: np.ndarray) -> bool:
    """Whether no number is NaN or infinite.

    Runs at every step, so for few numbers, where `np.isfinite` takes six times as long, Python
    sums them: any NaN or infinity survives a sum.
    """
    if values.dtype.kind != "f":
        return True
    if values.size <= _FEW:
        return math.isfinite(sum(values.ravel().tolist()))
    return bool(np.isfinite(values).all())


def _refusal(name: str, what: str, space: spaces.Space, wanted: str, advice: dict) -> str:
    help_text = advice.get(type(space), "write a wrapper that turns it into one of these")
    return (
        f"the {what} of {name} are {space}, a {type(space).__name__} space; supported are "
        f"{wanted}. What works: {help_text}."
    )
