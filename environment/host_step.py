"""What environments on the host promise, and what one of their steps returns."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from environment.spec import EnvSpec


class HostStep(NamedTuple):
    """The outcome of one step of `E` environment copies on the host, in NumPy arrays.

    The first five columns are those of `TimeStep`. An array may be shared with other columns and
    with other steps (`obs` is `next_obs` where no episode ended): read it, copy it, but do not
    write into it.

    Attributes:
        obs: [E, *obs] what the agent acts on next.
        reward: [E] float32.
        terminated: [E] bool, the world ended the episode.
        truncated: [E] bool, a time limit ended it.
        next_obs: [E, *obs] what the step led to, before any reset.
        valid: [E] bool. False where a foreign vector environment spent the step on a reset and
            ignored the action (NEXT_STEP): such a row is no transition and counts for nothing.
        ended: [E] bool, terminated or truncated.
        episode_return: [E] float32, sum of the rewards of the episode that ended.
        episode_length: [E] int32, its steps. Both are meaningful only where `ended`.
    """

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray
    valid: np.ndarray
    ended: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray


class HostEnv(Protocol):
    """Environment copies on the host that begin a new episode by themselves.

    Attributes:
        spec: What one copy observes and accepts.
        num_envs: Number of copies, `E`.
    """

    spec: EnvSpec
    num_envs: int

    def reset(self) -> np.ndarray:
        """Begin an episode in every copy; the observations [E, *obs].

        The first call seeds every copy, later ones go on with the copies' own generators.
        """
        ...

    def step(self, action: np.ndarray) -> HostStep:
        """Step every copy with its `action`, [E] integers in [0, num_actions)."""
        ...

    def close(self) -> None:
        """Close the environments that were made here; those that were given stay open."""
        ...
