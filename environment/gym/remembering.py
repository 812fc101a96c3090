"""Environments on the host that keep their agent's memory, as tensor ones do."""

from __future__ import annotations

from typing import Any

import numpy as np

from kytolly.environment.gym.step import HostEnv, HostStep
from kytolly.environment.memory import (
    FIRST,
    MEMORY,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    as_entries,
)
from kytolly.environment.memory_spec import cleared, empty_state, remembering_spec, shown_action
from kytolly.environment.spec import EnvSpec


class RememberingHostEnv:
    """A `HostEnv` whose actions are pairs: the action, and the memory [E, S] after it.

    Args:
        env: The environments.
        units: `S`, numbers that the agent remembers.
        shows_previous: Show the previous action and reward too.
    """

    def __init__(self, env: HostEnv, units: int, shows_previous: bool = False):
        self.env, self.units, self.shows_previous = env, units, shows_previous
        self.spec: EnvSpec = remembering_spec(env.spec, units, shows_previous)
        self.num_envs, self.has_dummy_steps = env.num_envs, env.has_dummy_steps
        self.given, self.restarts = env.given, env.restarts
        self._empty = empty_state(self.spec.obs, env.num_envs)
        self._next: dict[str, np.ndarray] = {}  # what is added after the step that goes on

    def reset(self, seed: int | None = None) -> Any:
        """Episodes that begin without a memory."""
        obs = as_entries(self.env.reset(seed))
        return {**obs, **self._empty}

    def step(self, action: Any) -> HostStep:
        """A step of the environments; the memory is what came with the action."""
        self.begin_step(action)
        return self.finish_step()

    def begin_step(self, action: Any) -> None:
        """Begin a step."""
        to_env, memory = action
        self._next = {MEMORY: np.asarray(memory, np.float32)}
        if self.shows_previous:
            self._next[PREVIOUS_ACTION] = shown_action(self.env.spec, np.asarray(to_env))
        self.env.begin_step(to_env)

    def finish_step(self) -> HostStep:
        """Wait for it; where another episode begins, or began within the step, nothing is known."""
        step = self.env.finish_step()
        added = {**self._next, FIRST: np.zeros(self.num_envs, bool)}
        if self.shows_previous:
            added[PREVIOUS_REWARD] = step.reward[:, np.newaxis].astype(np.float32)
        begins = step.ended | ~step.valid
        after = cleared(added, begins, self._empty) if begins.any() else added
        return step._replace(
            obs={**as_entries(step.obs), **after}, next_obs={**as_entries(step.next_obs), **added}
        )

    def get_state(self) -> dict[str, Any]:
        """The environments': the memory lies in the newest observation."""
        return self.env.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.env.set_state(state)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def remembering(env: HostEnv, units: int, shows_previous: bool) -> HostEnv:
    """The environments as an agent takes them whose memory has so many `units`; 0: it has none."""
    return RememberingHostEnv(env, units, shows_previous) if units else env
