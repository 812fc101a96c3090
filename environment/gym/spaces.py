"""From Gymnasium's observation spaces to the observations that the agents handle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from kytolly.environment.encoding import Encoding
from kytolly.environment.faults import EnvironmentFault, display_text
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.masks import mask_shape_fault
from kytolly.environment.gym.stacks import is_stack
from kytolly.environment.mask import ACTION_MASK
from kytolly.environment.spec import (
    ActionSpace,
    Box,
    Discrete,
    EnvSpec,
    num_choices,
)

_SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"
_ONE_HOT = spaces.Discrete | spaces.MultiDiscrete
MAX_NUMBERS = 2**24  # of an observation
_SMALL = 127  # largest integer of a grid
_FEW = 16  # numbers that Python sums faster than NumPy multiplies them
_SOME = 4096  # numbers that one BLAS thread multiplies faster than NumPy checks them


class ObservationForm:
    """The form in which observations of a space reach the agent: an array of numbers.

    A Box of uint8 stays uint8; any other Box, and MultiBinary, become float32. A single number
    gets an axis of size 1. Discrete and MultiDiscrete become one-hot, component after component.

    Args:
        space: The observation space of one environment, or an entry of it.
        name: The environment's name, for messages.
        entry: The entry's name; None for a whole observation.

    Attributes:
        spec: Shape and dtype that the agent sees.
        dtype: The same dtype in NumPy.
        shape: The same shape as a tuple.
        ready_shape: Shape of an array that can be copied into rows without `encode`; None where
            every observation has to be looked at.
        short: It is a row of few floats.
        grids: Names of the entries that hold bools, or small integers in three axes.
        encodings: Names of the entries that are no such arrays when the environment returns them,
            and how they become them.
        frame_stack, clips_rewards: As the space says, see `environment.gym.atari.FrameStack`.
    """

    plain = True  # the rows are what the agent sees, and nothing but NaN can be wrong with them

    def __init__(self, space: spaces.Space | None, name: str, entry: str | None = None):
        if not isinstance(space, spaces.Box | _ONE_HOT | spaces.MultiBinary):
            raise ValueError(_unsupported_space(name, entry, space))
        self.name, self._entry = name, "" if entry is None else f" {entry!r}"
        self.dtype = np.dtype(np.float32)
        self._raw_shape: tuple[int, ...] = space.shape or ()
        self.shape = self._raw_shape or (1,)
        if isinstance(space, spaces.Box):
            self.dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
        self._encoding = Encoding(self._raw_shape)
        if isinstance(space, spaces.Discrete):
            self._encoding = Encoding((), (int(space.n),), (int(space.start),))
        elif isinstance(space, spaces.MultiDiscrete):
            numbers = (tuple(part.ravel().tolist()) for part in (space.nvec, space.start))
            self._encoding = Encoding(self._raw_shape, *numbers)
        counts = self._encoding.counts
        self.shape = (sum(counts),) if counts else self.shape
        if 0 in self.shape or min(counts, default=1) < 1:
            raise ValueError(
                f"the observation space{self._entry} of {name} is {display_text(space)}, in which "
                "there is nothing to observe; expected at least one number."
            )
        if math.prod(self.shape) > MAX_NUMBERS:
            raise ValueError(
                f"the observation space{self._entry} of {name} is {display_text(space)}, which "
                f"makes {math.prod(self.shape):,} numbers (one-hot, where it is discrete), "
                f"expected at most {MAX_NUMBERS:,}. What works: show less, or a Box of floats."
            )
        self.grids = ("" if entry is None else entry,) if is_grid(space) else ()
        self.frame_stack = getattr(space, "frame_stack", 0)
        self.clips_rewards = getattr(space, "clips_rewards", False)
        encodes = bool(counts) or self.dtype != np.float32
        self.ready_shape = None if encodes else self._raw_shape
        self.short = not encodes and len(self._raw_shape) == 1 and self.shape[0] <= _FEW
        self.spec: Any = tf.TensorSpec(self.shape, self.dtype)
        is_same = self.shape == self._raw_shape and not counts
        self.encodings = () if is_same else ((entry or "", self._encoding),)

    def encode(self, raw: object, rows: int | None = None) -> np.ndarray:
        """New array [*obs] of one raw observation, or [rows, *obs] of a batch of them."""
        batch = () if rows is None else (rows,)
        values = np.asarray(raw)
        if values.shape != batch + self._raw_shape:
            raise EnvironmentFault(
                f"{self.name} returned an observation{self._entry} of shape {values.shape}, but "
                f"its observation space has shape {batch + self._raw_shape}."
            )
        if self._encoding.counts:
            if (encoded := self._encoding.one_hot(values)) is not None:
                return encoded
            raise EnvironmentFault(
                f"{self.name} returned the observation{self._entry} {values}, expected "
                f"{self._encoding.range_text()}."
            )
        return self._cast(values).reshape(batch + self.shape)

    def agent_view(self, rows: np.ndarray) -> np.ndarray:
        """Encoded observations [E, *obs] as the agent sees them."""
        return rows

    def allow_all(self, rows: np.ndarray, where: np.ndarray | list[int]) -> None:
        """Allow every action in some rows; nothing to do where no mask forbids any."""

    def first_fault(self, rows: np.ndarray) -> tuple[int, EnvironmentFault] | None:
        """The first row that no agent could use, and why; None if there is none."""
        if all_finite(rows):
            return None
        bad = int(np.argmin(np.isfinite(rows).reshape(len(rows), -1).all(axis=1)))
        return bad, EnvironmentFault(
            f"{self.name} returned an observation{self._entry} with NaN or infinite numbers, "
            f"expected finite ones: {np.array2string(rows[bad], threshold=20)}."
        )

    def _cast(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == self.dtype:
            return values.copy()
        if values.dtype.kind not in "biufO":
            raise EnvironmentFault(
                f"{self.name} returned an observation{self._entry} that is not numbers: its dtype "
                f"is {values.dtype}."
            )
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # `all_finite` sees the result
                result = values.astype(self.dtype)
        except (TypeError, ValueError) as error:
            raise EnvironmentFault(
                f"{self.name} returned an observation{self._entry} that is not numbers: {error}."
            ) from error
        if self.dtype == np.uint8 and not np.array_equal(result, values):
            raise EnvironmentFault(
                f"{self.name} returned a {values.dtype} observation{self._entry} with numbers that "
                "its uint8 observation space cannot hold. Declare the space with the dtype of what "
                "is in it."
            )
        return result


class MaskForm:
    """The form in which the entry that says which actions are allowed reaches the agent: bool [A].

    Args:
        space: The entry's space.
        name: The environment's name, for messages.
        action: What the environment accepts.
    """

    encodings = ()

    def __init__(self, space: spaces.Space, name: str, action: ActionSpace):
        if isinstance(action, Box):
            raise ValueError(
                f"the observations of {name} have an entry {ACTION_MASK!r}, but its actions are "
                "a Box, of which a mask cannot forbid any number. What works: leave the "
                "entry out with a gymnasium.wrappers.FilterObservation, or choose among a grid of "
                "actions with gymnasium.wrappers.DiscretizeAction."
            )
        self.name, self.dtype, self.shape = name, np.dtype(np.bool_), (num_choices(action),)
        self._counts = (action.count,) if isinstance(action, Discrete) else action.counts
        self._firsts = np.cumsum((0, *self._counts[:-1]))
        self.spec = tf.TensorSpec(self.shape, tf.bool)
        if not isinstance(space, spaces.Box | spaces.MultiBinary):
            raise ValueError(
                f"the entry {ACTION_MASK!r} of the observations of {name} is {space}, a "
                f"{type(space).__name__} space, expected a MultiBinary or a Box of 0 and 1."
            )
        if space.shape != self.shape:
            raise mask_shape_fault(name, space.shape, self.shape, " in its observation space")

    def encode(self, raw: object, rows: int | None = None) -> np.ndarray:
        """New array [A] of one raw mask, or [rows, A] of a batch of them."""
        values = np.asarray(raw)
        expected = self.shape if rows is None else (rows, *self.shape)
        if values.shape != expected:
            raise mask_shape_fault(self.name, values.shape, expected)
        allowed = values.astype(np.bool_)
        if values.dtype != np.bool_ and not np.array_equal(allowed, values):
            raise EnvironmentFault(
                f"{self.name} returned the action mask {values}, expected 1 for an allowed action "
                "and 0 for any other."
            )
        return allowed

    def forbids_all(self, rows: np.ndarray) -> np.ndarray:
        """[E] bool of [E, A] masks: a component of the action has no allowed value."""
        possible = np.logical_or.reduceat(rows, self._firsts, axis=1)
        return np.logical_not(np.all(possible, axis=1))

    def first_fault(self, rows: np.ndarray) -> tuple[int, EnvironmentFault] | None:
        """The first row that forbids everything, and the fault; None if there is none."""
        possible = np.logical_or.reduceat(rows, self._firsts, axis=1)
        if possible.all():
            return None
        bad = int(np.argmin(possible.all(axis=1)))
        component = int(np.argmin(possible[bad]))
        of_component = f" of component {component}" if len(self._counts) > 1 else ""
        return bad, EnvironmentFault(
            f"{self.name} returned an action mask that forbids all {self._counts[component]} "
            f"actions{of_component} though the episode goes on: {rows[bad].astype(int).tolist()}. "
            "Expected at least one 1 among them: end the episode where nothing is left to do."
        )


class DictForm:
    """The form in which observations of a Dict or Tuple space reach the agent: a dict of arrays.

    Between environment and agent they are the rows of one structured array, which can be copied
    and indexed like the array of any other observation. The parts of a Tuple are named by their
    numbers, from "0" on. An entry of a Dict or Tuple within another has the name "outer/inner".

    Args:
        space: The observation space of one environment.
        name: The environment's name, for messages.
        action: What the environment accepts; the entry `action_mask` must fit it.
    """

    plain = False
    short = False
    frame_stack, clips_rewards = 0, False
    shape = ()
    ready_shape = None

    def __init__(self, space: spaces.Dict | spaces.Tuple, name: str, action: ActionSpace):
        self.name = name
        leaves = dict(_leaves(space))
        _require_names(leaves, name)
        self._forms: dict[str, ObservationForm | MaskForm] = {
            (entry := "/".join(map(str, path))): MaskForm(leaf, name, action)
            if entry == ACTION_MASK
            else ObservationForm(leaf, name, entry)
            for path, leaf in leaves.items()
        }
        self._paths = list(zip(self._forms, leaves, strict=True))
        if not self._forms.keys() - {ACTION_MASK}:
            raise ValueError(
                f"the observations of {name} are {space}, expected at least one entry to observe."
            )
        fields = [(entry, form.dtype, form.shape) for entry, form in self._forms.items()]
        self.dtype = np.dtype(fields, align=True)
        self.spec = {entry: form.spec for entry, form in self._forms.items()}
        self.grids = tuple(
            entry
            for entry, leaf in zip(self._forms, leaves.values(), strict=True)
            if entry != ACTION_MASK and is_grid(leaf)
        )
        self.encodings = sum((form.encodings for form in self._forms.values()), ())

    def encode(self, raw: object, rows: int | None = None) -> np.ndarray:
        """New structured array [] of one raw observation, or [rows] of a batch of them."""
        result = np.empty(() if rows is None else (rows,), self.dtype)
        for entry, path in self._paths:
            value: Any = raw
            for key in path:
                try:
                    value = value[key]
                except (LookupError, TypeError) as error:
                    raise EnvironmentFault(
                        f"{self.name} returned an observation without the entry {entry!r} of its "
                        f"observation space: {raw}."
                    ) from error
            result[entry] = self._forms[entry].encode(value, rows)
        return result

    def agent_view(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Encoded observations as the agent sees them: name -> [E, ...]."""
        return {entry: np.ascontiguousarray(rows[entry]) for entry in self._forms}

    def allow_all(self, rows: np.ndarray, where: np.ndarray | list[int]) -> None:
        """Allow every action in those of the rows `where` whose mask, if any, forbids all."""
        form = self._forms.get(ACTION_MASK)
        if isinstance(form, MaskForm):
            masks = rows[ACTION_MASK]
            masks[where] |= form.forbids_all(masks[where])[:, np.newaxis]

    def first_fault(self, rows: np.ndarray) -> tuple[int, EnvironmentFault] | None:
        """The first row of an entry that no agent could use, and why; None if there is none."""
        for entry, form in self._forms.items():
            if (fault := form.first_fault(rows[entry])) is not None:
                return fault
        return None


def observation_form(
    space: spaces.Space | None, name: str, action: ActionSpace
) -> ObservationForm | DictForm:
    """The form in which observations of a space reach the agent.

    Raises:
        ValueError: The space is not supported, or has a mask for actions that take none.
        EnvironmentFault: Its mask has the wrong shape.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return DictForm(space, name, action)
    return ObservationForm(space, name)


def host_spec(
    name: str,
    form: ObservationForm | DictForm,
    actions: ActionForm,
    known_spec: RegisteredSpec | None,
) -> EnvSpec:
    """The spec of an environment, with the limit and threshold that Gymnasium knows, if any."""
    limit = threshold = None
    if known_spec is not None:
        limit, threshold = known_spec.max_episode_steps, known_spec.reward_threshold
    return EnvSpec(
        name,
        form.spec,
        actions.space,
        limit,
        None if threshold is None else float(threshold),
        grids=form.grids,
        encodings=form.encodings,
        frame_stack=form.frame_stack,
        clips_rewards=form.clips_rewards,
        is_stacked=known_spec is not None and any(map(is_stack, known_spec.additional_wrappers)),
        action_encoding=actions.encoding,
    )


def is_grid(space: spaces.Space) -> bool:
    """True for one axis of bools, or three of bools or small integers, which no image holds."""
    if not isinstance(space, spaces.Box | spaces.MultiBinary):
        return False
    axes = len(space.shape or ())
    if isinstance(space, spaces.MultiBinary) or space.dtype == np.bool_:
        return axes in (1, 3)
    integers = space.dtype is not None and space.dtype.kind in "iu" and space.dtype != np.uint8
    small = np.abs([space.low.min(), space.high.max()], dtype=np.float64) <= _SMALL
    return bool(axes == 3 and integers and small.all())


def all_finite(values: np.ndarray) -> bool:
    """True where no number is NaN or infinite.

    Runs at every step, and `np.isfinite` is slow for few numbers. Any NaN or infinity survives a
    sum, and so a dot product; a product that overflows is looked at again.
    """
    if values.size <= _FEW:
        return math.isfinite(sum(values.ravel().tolist()))
    if values.dtype.kind != "f":
        return True
    if values.size <= _SOME and math.isfinite(np.vdot(values, values)):  # `dot` warns of overflow
        return True
    return bool(np.isfinite(values).all())


def _leaves(
    space: spaces.Space, path: tuple[object, ...] = ()
) -> Iterator[tuple[tuple[object, ...], spaces.Space]]:
    """Path and space of every entry that is no Dict or Tuple."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
        return
    is_dict = isinstance(space, spaces.Dict)
    for key, inner in space.spaces.items() if is_dict else enumerate(space.spaces):
        yield from _leaves(inner, (*path, key))


def _require_names(paths: Iterable[tuple[object, ...]], name: str) -> None:
    """Refuse entries that would be one after flattening, or would have no name."""
    seen: dict[str, tuple[object, ...]] = {}
    for path in paths:
        entry = "/".join(map(str, path))
        if entry in seen or not entry:
            keys = f"the keys {path} and {seen[entry]}" if entry in seen else f"the key {path}"
            raise ValueError(
                f"the observations of {name} have {keys}, from which follows the name {entry!r}; "
                "expected a name of its own for every entry. What works: rename an entry in a "
                "gymnasium.wrappers.TransformObservation."
            )
        seen[entry] = path


def _unsupported_space(name: str, entry: str | None, space: spaces.Space | None) -> str:
    if space is None and entry is None:
        return (
            f"{name} has no observation_space, expected one: {_SUPPORTED}. Set "
            "self.observation_space in its __init__()."
        )
    help_text = "write a wrapper that turns it into one of these"
    what = f"the observations of {name} are"
    if entry is not None:
        what = f"the entry {entry!r} of the observations of {name} is"
        help_text = "leave it out with a gymnasium.wrappers.FilterObservation, or " + help_text
    return (
        f"{what} {display_text(space)}, a {type(space).__name__} space; supported are "
        f"{_SUPPORTED}. What works: {help_text}."
    )
