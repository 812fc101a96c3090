"""The spec of an environment from the plain data that `spec_to_dict` wrote into config.yaml."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from kytolly.environment.encoding import Encoding
from kytolly.environment.memory import FIRST, MEMORY
from kytolly.environment.spec import ActionSpace, Box, Discrete, EnvSpec, MultiDiscrete

DTYPES = ("float32", "uint8", "bool")  # of observations, and of masks
MAX_NUMBERS = 2**24  # of an observation, or of actions


def spec_from_dict(name: str, values: Mapping[str, Any]) -> EnvSpec:
    """The spec from which `spec_to_dict` made the values.

    Raises:
        ValueError: The values are none that it gives.
    """
    try:
        obs, grids = observation_from_dict(values["observation"]), values.get("grids", [])
        known = obs if isinstance(obs, dict) else {"": obs}
        if not set(grids) <= set(known):
            raise ValueError(f"grids {grids!s:.50}")
        encodings = values.get("encodings", {})
        return EnvSpec(
            name,
            obs,
            action_from_dict(values["action"]),
            grids=tuple(grids),
            encodings=tuple((n, encoding_from_dict(one, known[n])) for n, one in encodings.items()),
            action_encoding=action_encoding_from_dict(values["action"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the spec of the environment {name} cannot be read ({type(error).__name__}: {error}), "
            "expected the observation and the action that training wrote into config.yaml. Restore "
            "that file, or remove its spec to take that of the environment."
        ) from error


def state_units(spec: EnvSpec) -> int:
    """Numbers of the state of a memory that a spec has entries for; 0 where it has none."""
    if not isinstance(spec.obs, dict) or spec.obs.get(FIRST) != tf.TensorSpec([], tf.bool):
        return 0
    return spec.obs[MEMORY].shape.num_elements() or 0


def observation_from_dict(values: Mapping[str, Any]) -> Any:
    """A TensorSpec, or a dict of them."""
    if "entries" in values:
        entries = {
            str(name): observation_from_dict(entry) for name, entry in values["entries"].items()
        }
        if entries and not any(isinstance(entry, dict) for entry in entries.values()):
            return entries
        raise ValueError("entries are a dict of shapes")
    shape, dtype = [int(size) for size in values["shape"]], values["dtype"]
    if dtype not in DTYPES or any(size < 1 for size in shape) or math.prod(shape) > MAX_NUMBERS:
        raise ValueError(f"shape {shape}, dtype {dtype!s:.20}")
    return tf.TensorSpec(shape, dtype)


def encoding_from_dict(values: Mapping[str, Any], spec: tf.TensorSpec) -> Encoding:
    """The encoding of an entry of this spec."""
    parts = (tuple(map(operator.index, values[name])) for name in Encoding._fields)
    encoding = Encoding(*parts)
    count, numbers = math.prod(encoding.shape), sum(encoding.counts) or 1
    components = {len(encoding.counts), len(encoding.starts)}
    if (
        components not in ({count}, {0})
        or min(encoding.counts, default=1) < 1
        or spec.shape != (numbers,)
        or (count != 1 and not encoding.counts)
    ):
        raise ValueError(f"encoding {values!s:.80}")
    return encoding


def action_from_dict(values: Mapping[str, Any]) -> ActionSpace:
    """The action space."""
    if "discrete" in values:
        return Discrete(action_count(values["discrete"]))
    if "multi_discrete" in values:
        return MultiDiscrete(tuple(map(action_count, values["multi_discrete"])))
    low, high = (tuple(map(float, values[name])) for name in ("low", "high"))
    if not low or len(low) != len(high):
        raise ValueError(f"{len(low)} lowest and {len(high)} highest numbers")
    return Box(low, high)


def action_encoding_from_dict(values: Mapping[str, Any]) -> Encoding | None:
    """The form of the environment's own actions; None where it is that of the action space."""
    if "shape" not in values:
        return None
    space = action_from_dict(values)
    counts = (space.count,) if isinstance(space, Discrete) else getattr(space, "counts", ())
    shape, starts = (tuple(map(operator.index, values[name])) for name in ("shape", "starts"))
    numbers = len(counts or values["low"])
    if math.prod(shape) != numbers or len(starts) != len(counts):
        raise ValueError(f"actions of shape {shape} that start at {starts!s:.50}")
    return Encoding(shape, counts, starts)


def action_count(count: object) -> int:
    """A number of actions."""
    if isinstance(count, int) and 1 <= count <= MAX_NUMBERS:
        return count
    raise ValueError(f"{count!s:.20} actions")
