"""What an agent with a memory carries from one call of `act` to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from kytolly.environment.memory import (
    FIRST,
    MEMORY,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    as_entries,
)
from kytolly.environment.memory_spec import cleared, empty_state, plain_spec, shown_action
from kytolly.environment.spec import EnvSpec

State = Mapping[str, np.ndarray]  # [B, ...] by the names of the entries that a memory adds


class ActOptions(TypedDict, total=False):
    """Further arguments of `act` for an agent with a memory, which it describes."""

    state: State | None
    first: ArrayLike | None
    reward: ArrayLike | None


class MemoryStates:
    """Makes states, and puts them beside observations.

    Args:
        env_spec: The spec that the network was trained for, with the entries of its memory.
    """

    def __init__(self, env_spec: EnvSpec):
        self.plain, self.obs_spec = plain_spec(env_spec), as_entries(env_spec.obs)
        self.shows_previous = PREVIOUS_REWARD in self.obs_spec

    def initial(self, count: int) -> dict[str, np.ndarray]:
        """The state of `count` episodes that begin."""
        return empty_state(self.obs_spec, count)

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
        fresh = self.initial(rows)
        expected = {name: part.shape for name, part in fresh.items()}
        found = {name: np.shape(part) for name, part in state.items()} if state else {}
        if found != expected:
            raise ValueError(
                f"{method}() got a state of shapes {found} for {rows} observations, expected "
                f"{expected}: one of initial_state({rows}), or what act() returned."
            )
        entries = {name: np.asarray(state[name], part.dtype) for name, part in fresh.items()}
        if self.shows_previous and reward is None and not entries[FIRST].all():
            raise ValueError(
                f"{method}() was called without a reward, and this agent was trained with "
                "memory_inputs, expected that of the previous step: give it as reward=..."
            )
        if reward is not None and self.shows_previous:
            given = np.asarray(reward, np.float32).reshape(rows, 1)
            entries[PREVIOUS_REWARD] = np.where(entries[FIRST][:, np.newaxis], 0.0, given)
        if first is not None:
            entries = cleared(entries, np.broadcast_to(np.asarray(first, bool), [rows]), fresh)
        return {**as_entries(obs), **entries}

    def after(self, memory: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        """The state after actions [B, ...] as the environment takes them."""
        state = self.initial(len(memory)) | {MEMORY: memory, FIRST: np.zeros(len(memory), bool)}
        if self.shows_previous:
            state[PREVIOUS_ACTION] = shown_action(self.plain, np.asarray(action))
        return state
