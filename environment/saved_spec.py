"""What an agent sees and does, as plain data that a run's config.yaml holds."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from kytolly.environment.spec import ActionSpace, Box, Discrete, EnvSpec, MultiDiscrete

DTYPES = ("float32", "uint8", "bool")  # of observations, and of masks
MOST_NUMBERS = 2**24  # of an observation, or of actions


def plain_spec(env_spec: EnvSpec) -> dict[str, Any]:
    """Observation and action of an environment in words, numbers and lists.

    The observation is {shape, dtype}, or {entries: {name: {shape, dtype}}}. The action is
    {discrete: A}, {multi_discrete: [A1, A2, ...]} or {low: [D numbers], high: [D numbers]}. Where
    there are some, `grids` are the names of the entries that hold bools or small integers.
    """
    plain = {
        "observation": plain_observation(env_spec.obs),
        "action": plain_action(env_spec.action),
    }
    return plain | ({"grids": list(env_spec.grids)} if env_spec.grids else {})


def plain_observation(obs: Any) -> dict[str, Any]:
    """An observation's shape and dtype, or those of its entries by name."""
    if isinstance(obs, dict):
        return {"entries": {name: plain_observation(entry) for name, entry in obs.items()}}
    return {"shape": [int(size) for size in obs.shape], "dtype": obs.dtype.name}


def plain_action(action: ActionSpace) -> dict[str, Any]:
    """What an environment accepts."""
    if isinstance(action, Discrete):
        return {"discrete": int(action.count)}
    if isinstance(action, MultiDiscrete):
        return {"multi_discrete": [int(count) for count in action.counts]}
    return {"low": [float(x) for x in action.low], "high": [float(x) for x in action.high]}


def spec_of_plain(name: str, values: Any) -> EnvSpec:
    """The spec of which `plain_spec` gave the values.

    Raises:
        ValueError: The values are none that it gives.
    """
    try:
        obs, grids = read_observation(values["observation"]), values.get("grids", [])
        known = obs if isinstance(obs, dict) else {"": obs}
        if not set(grids) <= set(known):
            raise ValueError(f"grids {grids!s:.50}")
        return EnvSpec(name, obs, read_action(values["action"]), grids=tuple(grids))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the spec of the environment {name} cannot be read ({type(error).__name__}: {error}), "
            "expected the observation and the action that training wrote into config.yaml. Restore "
            "that file, or remove its spec to take that of the environment."
        ) from error


def read_observation(values: dict[str, Any]) -> Any:
    """A TensorSpec, or a dict of them."""
    if "entries" in values:
        entries = {str(name): read_observation(entry) for name, entry in values["entries"].items()}
        if entries and not any(isinstance(entry, dict) for entry in entries.values()):
            return entries
        raise ValueError("entries are a dict of shapes")
    shape, dtype = [int(size) for size in values["shape"]], values["dtype"]
    if dtype not in DTYPES or any(size < 1 for size in shape) or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"shape {shape}, dtype {dtype!s:.20}")
    return tf.TensorSpec(shape, dtype)


def read_action(values: dict[str, Any]) -> ActionSpace:
    """The action space."""
    if "discrete" in values:
        return Discrete(positive(values["discrete"]))
    if "multi_discrete" in values:
        return MultiDiscrete(tuple(map(positive, values["multi_discrete"])))
    low, high = (tuple(map(float, values[name])) for name in ("low", "high"))
    if not low or len(low) != len(high):
        raise ValueError(f"{len(low)} lowest and {len(high)} highest numbers")
    return Box(low, high)


def positive(count: Any) -> int:
    """A number of actions."""
    if isinstance(count, int) and 1 <= count <= MOST_NUMBERS:
        return count
    raise ValueError(f"{count!s:.20} actions")
