"""From actions as agents choose them to actions as Gymnasium's spaces hold them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from kytolly.environment.encoding import Encoding
from kytolly.environment.faults import display_text
from kytolly.environment.spec import ActionSpace, Box, Discrete, MultiDiscrete

MAX_CHOICES = 2**20
_SUPPORTED = "Discrete, MultiDiscrete, MultiBinary or a Box of floats"


class ActionForm:
    """The form in which an agent's actions reach environments whose action space is `space`.

    The agent numbers Discrete and MultiDiscrete actions from 0, whatever number the space begins
    with. MultiBinary is a MultiDiscrete of twos. A space with several axes is flattened.

    Args:
        space: The action space of one environment.
        name: The environment's name, for messages.

    Attributes:
        space: What the agent chooses from.
        encoding: The way from there to the environment's actions; None where they are the same.
    """

    space: ActionSpace
    encoding: Encoding | None = None

    def __init__(self, space: spaces.Space | None, name: str):
        self._shape: tuple[int, ...] | None = None  # None: one number, no array
        self._bounds: tuple[np.ndarray, np.ndarray] | None = None
        if isinstance(space, spaces.Discrete):
            self.space = Discrete(int(space.n))
            if space.start:
                self.encoding = Encoding((), (int(space.n),), (int(space.start),))
            _require_choice((self.space.count,), space, name)
            return
        starts: tuple[int, ...] = ()
        if isinstance(space, spaces.MultiDiscrete):
            self.space = MultiDiscrete(tuple(space.nvec.ravel().tolist()))
            starts = tuple(space.start.ravel().tolist())
        elif isinstance(space, spaces.MultiBinary):
            few = min(math.prod(space.shape), MAX_CHOICES)
            self.space, starts = MultiDiscrete((2,) * few), (0,) * few
        elif isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind == "f":
            low, high = (bound.ravel().tolist() for bound in (space.low, space.high))
            self.space = Box(tuple(low), tuple(high))
            if space.dtype == np.float64:  # float32 rounds some of its bounds to beyond them
                self._bounds = (space.low, space.high)
        else:
            raise ValueError(_unsupported_space(space, name))
        counts = (len(self.space.low),) if isinstance(self.space, Box) else self.space.counts
        _require_choice(counts, space, name)
        self._shape, self._dtype = space.shape, space.dtype
        self._size = math.prod(self._shape or ())
        if any(starts) or len(self._shape or ()) != 1:
            self.encoding = Encoding(self._shape or (), counts if starts else (), starts)

    def separate(self, action: np.ndarray) -> list[Any]:
        """A list of one action for each environment, from [E] or [E, D] actions."""
        if self._shape is None:  # Python's integers: environments check and compare them faster
            return self.batch(action).tolist()
        rows = self.batch(action)
        return list(rows) if self._shape else [np.array(row) for row in rows]

    def batch(self, action: np.ndarray) -> np.ndarray:
        """New array [E, *shape] of the space's dtype, from [E] or [E, D] actions."""
        if self._shape is None:
            return action if self.encoding is None else self.encoding.action(action)
        if action.ndim != 2 or action.shape[1] != self._size:
            raise ValueError(
                f"step() got actions of shape {list(action.shape)}, expected "
                f"[{len(action)}, {self._size}]: a row for each environment."
            )
        values = action if self.encoding is None else self.encoding.action(action)
        if self._bounds is not None:
            values = np.clip(values.astype(np.float64), *self._bounds)
        return values.astype(self._dtype)


def _require_choice(counts: tuple[int, ...], space: spaces.Space, name: str) -> None:
    if sum(counts) > MAX_CHOICES:
        raise ValueError(
            f"the actions of {name} are {display_text(space)}, {sum(counts):,} to choose from, "
            f"expected at most {MAX_CHOICES:,}. What works: a MultiDiscrete of few parts, or a "
            "Box of floats that a gymnasium.wrappers.TransformAction rounds."
        )
    if min(counts, default=0) < 1:
        raise ValueError(
            f"the actions of {name} are {display_text(space)}, in which there is nothing to "
            "choose; expected at least one action."
        )


def _unsupported_space(space: spaces.Space | None, name: str) -> str:
    kind = type(space).__name__
    what = f"a {kind} space"
    if space is None:
        return (
            f"{name} has no action_space, expected one: {_SUPPORTED}. Set self.action_space in its "
            "__init__()."
        )
    help_text = "write a wrapper that turns it into one of these"
    if isinstance(space, spaces.Box):
        what = f"a Box space of {space.dtype}"
        help_text = (
            "declare whole numbers as a MultiDiscrete, or the Box with a float dtype and round in "
            "a gymnasium.wrappers.TransformAction"
        )
    elif isinstance(space, (spaces.Dict, spaces.Tuple)):
        help_text = "join its parts to one of these in a gymnasium.wrappers.TransformAction"
    return (
        f"the actions of {name} are {display_text(space)}, {what}; supported are {_SUPPORTED}. "
        f"What works: {help_text}."
    )
