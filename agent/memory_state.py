"""What an agent with a memory carries from one call of `act` to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from kytolly.config.words import value_text
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
        if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
            raise ValueError(
                f"initial_state() got {count!r:.80}, expected a whole number of episodes, at least "
                "1: one for each observation that act() is given at a time."
            )
        return empty_state(self.obs_spec, int(count))

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
        entries = checked_state(state, fresh, method)
        if reward is not None:
            entries[PREVIOUS_REWARD] = self._shown_reward(reward, entries[FIRST], method)
        elif self.shows_previous and not entries[FIRST].all():
            raise ValueError(
                f"{method}() was called without a reward, and this agent was trained with "
                "memory_inputs, expected that of the previous step: give it as reward=..."
            )
        if first is not None:
            entries = cleared(entries, checked_first(first, rows, method), fresh)
        return {**as_entries(obs), **entries}

    def _shown_reward(self, reward: ArrayLike, begins: np.ndarray, method: str) -> np.ndarray:
        """[B, 1] rewards of the previous steps, of which there are none where an episode begins."""
        rows = len(begins)
        if not self.shows_previous:
            raise ValueError(
                f"{method}() got a reward, and this agent was trained without memory_inputs, "
                f"expected none: call {method}(obs, state=state)."
            )
        given = np.asarray(reward)
        if given.size != rows or given.dtype.kind not in "biuf" or not np.isfinite(given).all():
            raise ValueError(
                f"{method}() got the reward {value_text(reward)} for {rows} observations, expected "
                f"{rows} finite numbers: those that the previous step of each environment returned."
            )
        given = given.astype(np.float32).reshape(rows, 1)
        return np.where(begins[:, np.newaxis], np.float32(0.0), given)

    def after(self, memory: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
        """The state after actions [B, ...] as the environment takes them."""
        state = self.initial(len(memory)) | {MEMORY: memory, FIRST: np.zeros(len(memory), bool)}
        if self.shows_previous:
            state[PREVIOUS_ACTION] = shown_action(self.plain, np.asarray(action))
        return state


def checked_state(
    state: Any, fresh: Mapping[str, np.ndarray], method: str
) -> dict[str, np.ndarray]:
    """The entries of a state in their dtypes; ValueError where they are not as in a `fresh` one."""
    rows = len(fresh[FIRST])
    whence = f"one of initial_state({rows}), or what act() returned"
    if not isinstance(state, Mapping):
        raise ValueError(
            f"{method}() got a state that is {type(state).__name__}, expected a dict with "
            f"{', '.join(fresh)}: {whence}, as it is."
        )
    expected = {name: part.shape for name, part in fresh.items()}
    found = {name: np.shape(part) for name, part in state.items()}
    if found != expected:
        raise ValueError(
            f"{method}() got a state of shapes {found} for {rows} observations, expected "
            f"{expected}: {whence}."
        )
    entries = {name: np.asarray(state[name], part.dtype) for name, part in fresh.items()}
    for name, part in entries.items():
        if not np.isfinite(part).all():
            raise ValueError(
                f"{method}() got a state with NaN or infinite numbers in {name!r}, expected finite "
                f"ones: {whence}."
            )
    return entries


def checked_first(first: ArrayLike, rows: int, method: str) -> np.ndarray:
    """[B] bool; ValueError where it is neither that nor one bool for all."""
    begins = np.asarray(first)
    if begins.dtype != bool or begins.shape not in ((), (rows,)):
        raise ValueError(
            f"{method}() got first={value_text(first)} for {rows} observations, expected True or "
            f"False, or {rows} of them: where an episode begins with the observation."
        )
    return np.broadcast_to(begins, [rows])
