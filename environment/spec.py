"""The promises of an environment."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from kytolly.environment.mask import ACTION_MASK as ACTION_MASK
from kytolly.environment.mask import without_mask


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


class Encoding(NamedTuple):
    """The way to an array of numbers from what an environment returns: one-hot, or a first axis.

    Attributes:
        shape: Of what it returns; () for a number.
        counts: How many numbers each component may be, if they become one-hot, one after another.
        starts: The lowest number of each component.
    """

    shape: tuple[int, ...]
    counts: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    def one_hot(self, values: np.ndarray) -> np.ndarray | None:
        """[..., sum(counts)] float32 of integers [..., *shape]; None where one is out of range."""
        counts, starts, offsets = _as_arrays(self.counts, self.starts)
        batch = values.shape[: values.ndim - len(self.shape)]
        index = values.reshape(-1, len(counts)) - starts
        if values.dtype.kind not in "iu" or ((index < 0) | (index >= counts)).any():
            return None
        rows, size = len(index), sum(self.counts)
        result, ones = np.zeros(rows * size, np.float32), index + offsets
        result[ones if rows == 1 else ones + size * np.arange(rows)[:, np.newaxis]] = 1.0
        return result.reshape(*batch, size)

    def range_text(self) -> str:
        """The numbers that are expected."""
        last = [first + count - 1 for first, count in zip(self.starts, self.counts, strict=True)]
        if self.shape:
            return f"integers from {list(self.starts)} to {last}"
        return f"an integer from {self.starts[0]} to {last[0]}"


@functools.cache  # called at every env step
def _as_arrays(counts: tuple[int, ...], starts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Counts and starts, and the place of each component's first number."""
    sizes = np.array(counts, np.int64)
    return sizes, np.array(starts, np.int64), np.cumsum(sizes) - sizes


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

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, `A`; the sum over those of a MultiDiscrete."""
        return num_choices(self.action)

    def network_input(self) -> Any:
        """The network's input, in which grids of bools or small integers have the dtype bool."""
        seen: Any = without_mask(self.obs)
        for name in self.grids:
            grid = tf.TensorSpec((seen[name] if name else seen).shape, tf.bool)
            seen = {**seen, name: grid} if name else grid
        return seen

    @property
    def has_real_vectors(self) -> bool:
        """True where observations are vectors of real numbers: no images, grids or one-hot ones."""
        entries = self.obs if isinstance(self.obs, dict) else {"": self.obs}
        one_hot = {name for name, encoding in self.encodings if encoding.counts}
        return all(
            spec.dtype.is_floating and len(spec.shape) == 1
            for name, spec in entries.items()
            if name != ACTION_MASK
        ) and not (one_hot or self.grids)

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
