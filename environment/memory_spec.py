"""The spec of an environment whose agent has a memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.environment.memory import (
    ADDED,
    FIRST,
    MEMORY,
    OBSERVATION,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    as_entries,
)
from kytolly.environment.spec import Box, Discrete, EnvSpec, num_choices


def action_width(spec: EnvSpec) -> int:
    """Numbers by which an action is shown."""
    return len(spec.action.low) if isinstance(spec.action, Box) else num_choices(spec.action)


def remembering_spec(spec: EnvSpec, units: int, shows_previous: bool) -> EnvSpec:
    """The spec of an environment with the entries that a memory adds."""
    if spec.frame_stack or spec.is_stacked:
        warnings.warn(
            f"{spec.name} stacks observations, and the agent has a memory: each alone shows what "
            "moves. Stacks are kept whole in a replay memory, which takes as much more room. Leave "
            "the wrapper out, or set memory to none.",
            stacklevel=2,
        )
    obs = as_entries(spec.obs)
    taken = [name for name in ADDED if name in obs]
    if isinstance(spec.obs, dict) and list(obs) == [OBSERVATION]:
        taken = [OBSERVATION]  # which stands for an observation that is no dict
    if taken:
        raise ValueError(
            f"{spec.name} has an entry {taken[0]!r} in its observations, a name that an agent with "
            "a memory uses itself, expected another one. Rename the entry by a wrapper."
        )
    obs |= {MEMORY: tf.TensorSpec([units]), FIRST: tf.TensorSpec([], tf.bool)}
    if shows_previous:
        obs[PREVIOUS_ACTION] = tf.TensorSpec([action_width(spec)])
        obs[PREVIOUS_REWARD] = tf.TensorSpec([1])
    encodings = tuple((name or OBSERVATION, encoding) for name, encoding in spec.encodings)
    grids = tuple(name or OBSERVATION for name in spec.grids)
    return spec._replace(obs=obs, encodings=encodings, grids=grids, frame_stack=0)


def plain_spec(spec: EnvSpec) -> EnvSpec:
    """The spec without what `remembering_spec` added."""
    if not isinstance(spec.obs, dict) or MEMORY not in spec.obs:
        return spec
    obs = {name: part for name, part in spec.obs.items() if name not in ADDED}
    if list(obs) != [OBSERVATION]:
        return spec._replace(obs=obs)
    encodings = tuple(("", encoding) for _, encoding in spec.encodings)
    grids = ("",) * len(spec.grids)
    return spec._replace(obs=obs[OBSERVATION], encodings=encodings, grids=grids)


def shown_action(spec: EnvSpec, action: np.ndarray) -> np.ndarray:
    """[E, D] numbers of actions [E, ...]: one-hot where they are discrete."""
    if isinstance(spec.action, Box):
        return action.astype(np.float32)
    if isinstance(spec.action, Discrete):
        return np.eye(spec.action.count, dtype=np.float32)[action]
    parts = [
        np.eye(count, dtype=np.float32)[action[:, place]]
        for place, count in enumerate(spec.action.counts)
    ]
    return np.concatenate(parts, axis=-1)


def empty_state(obs: Any, count: int) -> dict[str, np.ndarray]:
    """The entries that a memory adds to observations of a spec, of `count` episodes that begin."""
    state = {
        name: np.zeros([count, *obs[name].shape], obs[name].dtype.as_numpy_dtype)
        for name in ADDED
        if name in obs
    }
    return state | {FIRST: np.ones(count, bool)}


def cleared(
    state: Mapping[str, np.ndarray], begins: np.ndarray, empty: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """A state [E, ...] of which nothing is left where an episode `begins` [E], as in `empty`."""
    return {
        name: np.where(begins.reshape(-1, *[1] * (part.ndim - 1)), empty[name], part)
        for name, part in state.items()
    }
