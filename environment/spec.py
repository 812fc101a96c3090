"""The promises of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from kytolly.environment.mask import ACTION_MASK as ACTION_MASK
from kytolly.environment.mask import without_mask
from kytolly.environment.memory import ADDED

if TYPE_CHECKING:
    from kytolly.environment.encoding import Encoding


class Discrete(NamedTuple):
    """One of `count` actions, numbered from 0: [E] int32."""

    count: int


class MultiDiscrete(NamedTuple):
    """`D` discrete actions at once, number d from 0 to counts[d] - 1: [E, D] int32."""

    counts: tuple[int, ...]


class Box(NamedTuple):
    """`D` numbers, number d from low[d] to high[d] (infinite: no bound): [E, D] float32."""

    low: tuple[float, ...]
    high: tuple[float, ...]


ActionSpace = Discrete | MultiDiscrete | Box
StepOutcome = tuple[Any, tf.Tensor, tf.Tensor]  # next state, reward [E], terminated [E]


class EnvSpec(NamedTuple):
    """The shape of an environment: all that a network or a buffer needs to know of it.

    In a dict of observations the entry `action_mask` [A] bool says which actions are allowed.
    """

    name: str  # Gymnasium id or a name of our own
    obs: tf.TensorSpec | dict[str, tf.TensorSpec]  # without the batch axis, or several by name
    action: ActionSpace  # what the environment accepts
    max_episode_steps: int | None = None  # env steps after which an episode is truncated
    reward_threshold: float | None = None  # mean return that counts as solved
    truncates_at_limit_only: bool = False  # nothing else is known to truncate an episode
    grids: tuple[str, ...] = ()  # entries that hold bools or small integers; "": the observation
    frame_stack: int = 0  # frames of an observation [H, W, K], each seen before; 0: it is no stack
    clips_rewards: bool = False  # the host loop learns from the sign of each reward
    encodings: tuple[tuple[str, Encoding], ...] = ()  # of entries that are encoded; "" as in grids
    is_stacked: bool = False  # a wrapper of Gymnasium shows earlier observations, too
    action_encoding: Encoding | None = None  # of actions that begin beyond 0, or have several axes

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, `A`; the sum over those of a MultiDiscrete."""
        return num_choices(self.action)

    @property
    def has_numbers_as_actions(self) -> bool:
        """True where an action is real numbers, not a choice."""
        return isinstance(self.action, Box)

    def network_input(self) -> Any:
        """The network's input: grids, and one-hot entries of a dict, have the dtype bool."""
        seen: Any = without_mask(self.obs)
        one_hot = [name for name, encoding in self.encodings if encoding.counts and name]
        for name in (*self.grids, *one_hot):
            bools = tf.TensorSpec((seen[name] if name else seen).shape, tf.bool)
            seen = {**seen, name: bools} if name else bools
        return seen

    @property
    def has_real_vectors(self) -> bool:
        """True where the observation, or an entry, is a vector of real numbers, not one-hot."""
        entries = self.network_input()
        entries = entries if isinstance(entries, dict) else {"": entries}
        others = {*ADDED, *(name for name, encoding in self.encodings if encoding.counts)}
        seen = [entries[name] for name in entries.keys() - others]
        return any(spec.dtype.is_floating and len(spec.shape) == 1 for spec in seen)

    @property
    def has_images(self) -> bool:
        """True where the observation, or an entry, has three axes: an image or a grid."""
        return any(len(entry.shape) > 2 for entry in tf.nest.flatten(self.obs))

    @property
    def has_states(self) -> bool:
        """True where an observation is one of a few numbered states, as one-hot [S]."""
        seen = without_mask(self.obs)
        name, *others = seen if isinstance(seen, dict) else [""]
        encoding = None if others else dict(self.encodings).get(name)
        return encoding is not None and len(encoding.counts) == 1

    @property
    def masked(self) -> bool:
        """True where observations say which actions are allowed."""
        return isinstance(self.obs, dict) and ACTION_MASK in self.obs


def action_spec(action: ActionSpace, rows: int) -> tf.TensorSpec:
    """Shape and dtype of the actions of `rows` env steps."""
    if isinstance(action, Box):
        return tf.TensorSpec([rows, len(action.low)], tf.float32)
    shape = [rows] if isinstance(action, Discrete) else [rows, len(action.counts)]
    return tf.TensorSpec(shape, tf.int32)


def num_choices(action: ActionSpace) -> int:
    """Length of an action mask, `A`: all discrete actions, those of a MultiDiscrete in a row."""
    if isinstance(action, Box):
        raise ValueError("a Box has no discrete actions, so it cannot be masked.")
    return action.count if isinstance(action, Discrete) else sum(action.counts)


@runtime_checkable
class TensorEnvironment(Protocol):
    """An environment in tensor code: one object steps `E` environments together.

    Its methods are pure functions of tensors that XLA can compile. They draw no random numbers:
    they receive `reset_uniforms` (`step_uniforms`) numbers, uniform in [0, 1), for each of them.
    `environment.tensor.stepping` adds time limits and automatic resets.
    """

    spec: EnvSpec
    reset_uniforms: int
    step_uniforms: int

    def reset(self, uniform: tf.Tensor) -> Any:
        """State of new episodes, a nest of [E, ...] tensors, from [E, reset_uniforms] draws."""

    def observe(self, state: Any) -> Any:
        """Observation [E, *obs] of a state, or a dict of them."""

    def step(self, state: Any, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Next state, reward and end after an `action` that fits `spec.action`."""
        ...


def spec_to_dict(env_spec: EnvSpec) -> dict[str, Any]:
    """Observation and action of an environment in words, numbers and lists.

    The observation is {shape, dtype}, or {entries: {name: {shape, dtype}}}. The action is
    {discrete: A}, {multi_discrete: [A1, A2, ...]} or {low: [D numbers], high: [D numbers]}, with
    {shape, starts} where the environment's differ. `grids`, if any, are the entries of bools or
    small integers; `encodings` of entries are {name: {shape, counts, starts}}, "" the observation.
    """
    action, form = action_to_dict(env_spec.action), env_spec.action_encoding
    if form is not None:
        action |= {"shape": list(form.shape), "starts": list(form.starts)}
    data: dict[str, Any] = {"observation": observation_to_dict(env_spec.obs), "action": action}
    encodings = {
        name: {part: list(value) for part, value in encoding._asdict().items()}
        for name, encoding in env_spec.encodings
    }
    if env_spec.grids:
        data["grids"] = list(env_spec.grids)
    if encodings:
        data["encodings"] = encodings
    return data


def observation_to_dict(obs: tf.TensorSpec | dict[str, tf.TensorSpec]) -> dict[str, Any]:
    """An observation's shape and dtype, or those of its entries by name."""
    if isinstance(obs, dict):
        return {"entries": {name: observation_to_dict(entry) for name, entry in obs.items()}}
    return {"shape": obs.shape.as_list(), "dtype": obs.dtype.name}


def action_to_dict(action: ActionSpace) -> dict[str, Any]:
    """An action space as {discrete}, {multi_discrete} or {low, high}."""
    if isinstance(action, Discrete):
        return {"discrete": int(action.count)}
    if isinstance(action, MultiDiscrete):
        return {"multi_discrete": [int(count) for count in action.counts]}
    return {"low": [float(x) for x in action.low], "high": [float(x) for x in action.high]}
