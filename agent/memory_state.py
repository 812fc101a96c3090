"""What an agent with a memory carries from one call of `act` to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kytolly.environment.memory import (
    FIRST,
    MEMORY,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    as_entries,
)
from kytolly.environment.memory_spec import plain_spec, shown_action
from kytolly.environment.spec import EnvSpec

State = Mapping[str, np.ndarray]  # [B, ...] by the names of the entries that a memory adds


class MemoryStates:
    """Makes states, and puts them beside observations.

    Args:
        env_spec: The spec that the network was trained for, with the entries of its memory.
    """

    def __init__(self, env_spec: EnvSpec):
        self.plain = plain_spec(env_spec)
        known = as_entries(self.plain.obs)
        self.specs = {
            name: (tuple(spec.shape), spec.dtype.as_numpy_dtype)
            for name, spec in as_entries(env_spec.obs).items()
            if name not in known
        }
        self.shows_previous = PREVIOUS_REWARD in self.specs

    def initial(self, count: int) -> dict[str, np.ndarray]:
        """The state of `count` episodes that begin."""
        state = {
            name: np.zeros([count, *shape], dtype) for name, (shape, dtype) in self.specs.items()
        }
        return state | {FIRST: np.ones(count, bool)}

    def beside(
        self,
        obs: Any,
        rows: int,
        state: State | None,
        first: ArrayLike | None,
        reward: ArrayLike | None,
        method: str,
    ) -> dict[str, np.ndarray]:
        """The observations [B, *obs] with a state, of which nothing is left where `first`."""
        if state is None:
            raise ValueError(
                f"{method}() was called without a state, and this agent has a memory: begin with "
                "state = agent.initial_state(), and go on with action, state = "
                "agent.act(obs, state=state)."
            )
        expected = {name: (rows, *shape) for name, (shape, _) in self.specs.items()}
        found = {name: np.shape(part) for name, part in state.items()} if state else {}
        if found != expected:
            raise ValueError(
                f"{method}() got a state of shapes {found} for {rows} observations, expected "
                f"{expected}: one of initial_state({rows}), or what act() returned."
            )
        entries = {name: np.asarray(state[name], dtype) for name, (_, dtype) in self.specs.items()}
        if self.shows_previous and reward is None and not entries[FIRST].all():
            raise ValueError(
                f"{method}() was called without a reward, and this agent was trained with "
                "memory_inputs, expected that of the previous step: give it as reward=..."
            )
        if reward is not None and self.shows_previous:
            given = np.asarray(reward, np.float32).reshape(rows, 1)
            entries[PREVIOUS_REWARD] = np.where(entries[FIRST][:, np.newaxis], 0.0, given)
        if first is not None:
            begins = np.broadcast_to(np.asarray(first, bool), [rows])
            fresh = self.initial(rows)
            entries = {
                name: np.where(begins.reshape(-1, *[1] * (part.ndim - 1)), fresh[name], part)
                for name, part in entries.items()
            }
        return {**as_entries(obs), **entries}

    def after(self, memory: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        """The state after actions [B, ...] as the environment takes them."""
        state = self.initial(len(memory)) | {MEMORY: memory, FIRST: np.zeros(len(memory), bool)}
        if self.shows_previous:
            state[PREVIOUS_ACTION] = shown_action(self.plain, np.asarray(action))
        return state
