"""The whole act function of an agent: named tensors in, actions and values out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostObs, ObsSpec
from kytolly.agent.inference import rows_of
from kytolly.agent.kytolly import KytollyAgent
from kytolly.config.run import RunConfig
from kytolly.deployment.loaded_agent import LoadedAgent
from kytolly.environment.encoding import Encoding
from kytolly.environment.mask import ACTION_MASK, MASKED_LOGIT, without_mask
from kytolly.environment.memory import FIRST, MEMORY, has_memory
from kytolly.policy.action_values import reward_scale
from kytolly.policy.base import (
    ActionReader,
    greedy_action,
    masked_params,
    next_memory,
    read_outputs,
)
from kytolly.policy.batch import Obs
from kytolly.policy.distributions import Distribution

OBSERVATION = "observation"  # the input's name where observations are no Dict
NEXT_MEMORY = "next_memory"  # the output that is the next call's input `agent_memory`
CHUNK = 250  # rows that the agent looks at together
SEQUENCES = 8  # in which rows lie for an agent with a memory: step by step, a row of each
Run = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]  # a file on named arrays


class ActingParts(NamedTuple):
    """The network and rule of an agent's greedy action: a loaded run's, or a training result's.

    Attributes:
        network: Built Keras model.
        distribution: Reads its params.
        obs_spec: Shape and dtype of one observation, or a dict of them.
        env_name: The environment's name.
        cfg: The run's config.
        encodings: Those of `EnvSpec`, of entries that are one-hot.
    """

    network: keras.Model
    distribution: ActionReader
    obs_spec: ObsSpec
    env_name: str
    cfg: RunConfig
    encodings: tuple[tuple[str, Encoding], ...] = ()

    @property
    def has_mask(self) -> bool:
        """True where a mask may forbid actions."""
        return isinstance(self.obs_spec, Mapping) and ACTION_MASK in self.obs_spec

    @property
    def has_memory(self) -> bool:
        """True where the network remembers: it has the state as an input and an output."""
        return has_memory(self.obs_spec)


def acting_parts(agent: KytollyAgent | LoadedAgent) -> ActingParts:
    """The parts of an agent; TypeError for anything else."""
    if not isinstance(agent, KytollyAgent | LoadedAgent):
        raise TypeError(
            f"export() got {type(agent).__name__}, expected the agent of a training's result or of "
            "kytolly.load(RUN)."
        )
    reader = agent.policy if isinstance(agent, KytollyAgent) else agent
    spec = agent.env_spec
    network, distribution = reader.network, reader.distribution
    return ActingParts(network, distribution, spec.obs, spec.name, agent.cfg, spec.encodings)


class ActFunction(tf.Module):
    """Greedy actions of a batch of observations, with what the network says of them.

    Inputs are `observation`, or the entries of a Dict under names that every format accepts
    (letters, digits and underscores), `action_mask` among them. Outputs are `action` as the
    environment takes it, and `values` [B, A] of actions, in units of reward, or, with a critic,
    `params` [B, P] and `value` [B]. Values and params are masked. Of a network with a memory
    `memory` [B, S] is an input and `next_memory` an output: zeros where an episode begins.

    Everything is computed in float32: half precision is for training, and not every runtime has it.

    Args:
        parts: The agent's.
        narrow_mask: A forbidden action's param is little below the others instead of -1e9, which
            integers of 8 bits could not hold together with them.
        unrolled: Recurrent layers are written step by step, for runtimes without loops over lists.

    Attributes:
        inputs: [B, ...] specs by the names of the inputs.
        concrete: The traced function.
    """

    def __init__(self, parts: ActingParts, narrow_mask: bool = False, unrolled: bool = False):
        super().__init__(name="act")
        # Not as an attribute: SavedModel would write the Keras model beside the function, and call
        # it with one argument, which a user's model of a memory does not take.
        self._parts = lambda: parts
        self.narrow_mask, self.value_unit = narrow_mask, value_unit(parts)
        spec = parts.obs_spec
        entries = dict(spec) if isinstance(spec, Mapping) else {OBSERVATION: spec}
        entries.pop(FIRST, None)  # of one step nothing depends on it
        self.entry_names = dict(zip(input_names(entries), entries, strict=True))
        self.inputs = {
            name: tf.TensorSpec([None, *entries[entry].shape], entries[entry].dtype, name=name)
            for name, entry in self.entry_names.items()
        }
        # TensorFlow does not follow the lists of layers that a Keras model holds.
        self.weights = [variable.value for variable in parts.network.variables]
        with float32_layers(parts.network), recurrent_layers(parts.network, unrolled):
            self.concrete = tf.function(self._act, autograph=False).get_concrete_function(
                **self.inputs
            )

    @property
    def parts(self) -> ActingParts:
        """The agent's."""
        return self._parts()

    def _act(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        network, distribution, spec = self.parts[:3]
        entries = {entry: inputs[name] for name, entry in self.entry_names.items()}
        obs: Obs = entries if isinstance(spec, Mapping) else entries[OBSERVATION]
        unmasked = without_mask(obs)
        outputs = network(unmasked)
        seen = unmasked if self.narrow_mask else obs
        params, value = read_outputs(outputs, distribution, seen)
        if self.narrow_mask and isinstance(obs, Mapping) and ACTION_MASK in obs:
            low = tf.reduce_min(params, axis=-1, keepdims=True)
            high = tf.reduce_max(params, axis=-1, keepdims=True)
            params = tf.where(obs[ACTION_MASK], params, 2.0 * low - high - 1.0)
        named = named_outputs(distribution, params, value, seen, self.value_unit)
        return with_memory_output(named, next_memory(outputs, obs))

    def named_inputs(self, obs: HostObs) -> dict[str, np.ndarray]:
        """Observations [B, *obs], or a dict of them, by the names of the inputs."""
        if not isinstance(obs, Mapping):
            return {OBSERVATION: obs}
        return {name: obs[entry] for name, entry in self.entry_names.items()}


def value_unit(parts: ActingParts) -> float:
    """Reward for each 1 of the action values that the network gives."""
    return 1.0 / float(reward_scale(parts.cfg, parts.network))


def named_outputs(
    distribution: ActionReader,
    params: tf.Tensor,
    value: tf.Tensor | None,
    seen: Obs,
    unit: float,
) -> dict[str, tf.Tensor]:
    """The outputs by name; action values times their `value_unit`, masked again as `seen` says."""
    action = distribution.to_env(distribution.mode(params))
    if value is None:
        return {"action": action, "values": masked_params(unit * params, distribution, seen)}
    return {"action": action, "params": params, "value": value}


def with_memory_output(
    outputs: dict[str, tf.Tensor], memory: tf.Tensor | None
) -> dict[str, tf.Tensor]:
    """The outputs, and what is remembered after the step where the network has a memory."""
    return outputs if memory is None else {**outputs, NEXT_MEMORY: memory}


def input_names(entries: Iterable[str]) -> list[str]:
    """A name for each entry that is no other's: letters, digits and underscores only."""
    names: list[str] = []
    entries = list(entries)
    for entry in entries:
        word = "".join(c if c.isascii() and c.isalnum() else "_" for c in entry)
        word = word if word[:1].isalpha() else f"part_{word}"
        name, count = word, 1
        while name in names or (name != entry and name in entries):
            count += 1
            name = f"{word}_{count}"
        names.append(name)
    return names


def float32_layers(network: keras.Model) -> AbstractContextManager[None]:
    """Let every layer compute in float32 for as long as the block lasts."""
    half = [
        layer
        for layer in network._flatten_layers()
        if layer.compute_dtype in ("float16", "bfloat16")
    ]
    return with_attribute(half, "dtype_policy", "float32")


def recurrent_layers(network: keras.Model, unrolled: bool) -> AbstractContextManager[None]:
    """Let every recurrent layer be unrolled, if asked for, for as long as the block lasts."""
    layers = network._flatten_layers() if unrolled else []
    loops = [layer for layer in layers if isinstance(layer, keras.layers.RNN)]
    return with_attribute(loops, "unroll", True)


@contextlib.contextmanager
def with_attribute(
    layers: Sequence[keras.layers.Layer], name: str, value: object
) -> Iterator[None]:
    """Let an attribute of layers have another value for as long as the block lasts."""
    before = [getattr(layer, name) for layer in layers]
    try:
        for layer in layers:
            setattr(layer, name, value)
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            setattr(layer, name, old)


def float32_outputs(parts: ActingParts, obs: HostObs) -> dict[str, np.ndarray]:
    """The outputs that an export must give for observations [B, *obs], from the network itself."""
    distribution, unit = parts.distribution, value_unit(parts)

    def outputs_of(obs: HostObs) -> dict[str, tf.Tensor]:
        chunk = as_tensors(obs)
        with float32_layers(parts.network):
            outputs = parts.network(without_mask(chunk))
        params, value = read_outputs(outputs, distribution, chunk)
        named = named_outputs(distribution, params, value, chunk, unit)
        return with_memory_output(named, next_memory(outputs, chunk))

    if parts.has_memory:
        return carried_outputs(outputs_of, obs)
    chunks = [
        outputs_of(rows(obs, slice(start, start + CHUNK)))
        for start in range(0, rows_of(obs), CHUNK)
    ]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def carried_outputs(
    step: Callable[[dict[str, np.ndarray]], Mapping[str, Any]], obs: HostObs
) -> dict[str, np.ndarray]:
    """The outputs of steps that remember, for rows of `SEQUENCES` sequences, a row of each in turn.

    Each step gets what the step before gave as `NEXT_MEMORY`, and nothing where an episode begins.
    """
    if not isinstance(obs, Mapping):
        raise TypeError("observations with a memory are a dict")
    found = []
    memory = np.asarray(obs[MEMORY][:SEQUENCES])
    for start in range(0, rows_of(obs), SEQUENCES):
        now = rows(obs, slice(start, start + SEQUENCES))
        memory = np.where(now[FIRST][:, np.newaxis], np.float32(0.0), memory[: rows_of(now)])
        outputs = step(dict(now) | {MEMORY: memory})
        found.append({name: np.asarray(part) for name, part in outputs.items()})
        memory = found[-1][NEXT_MEMORY]
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def greedy_actions(parts: ActingParts, obs: HostObs) -> np.ndarray:
    """The agent's greedy actions in its own precision."""
    chunks = (rows(obs, slice(i, i + CHUNK)) for i in range(0, rows_of(obs), CHUNK))
    actions = [greedy_action(parts.network, parts.distribution, as_tensors(c)) for c in chunks]
    return np.concatenate([pair[0] if parts.has_memory else pair for pair in actions])


def as_tensors(obs: HostObs) -> Obs:
    """The same observations as tensors."""
    return tf.nest.map_structure(tf.constant, obs)


def forbidden(parts: ActingParts, params: np.ndarray, action: np.ndarray) -> int:
    """The number of [B] actions that are forbidden by the mask behind the params [B, P]."""
    if not parts.has_mask or not isinstance(parts.distribution, Distribution):
        return 0
    log_prob = parts.distribution.log_prob(tf.constant(params), tf.constant(action))
    return int(np.sum(log_prob < MASKED_LOGIT / 2))


def rows(obs: HostObs, index: slice) -> HostObs:
    """Some rows of observations [B, *obs], or of a dict of them."""
    if isinstance(obs, Mapping):
        return {name: part[index] for name, part in obs.items()}
    return obs[index]
