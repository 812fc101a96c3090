"""Vector environments made elsewhere, in any of Gymnasium's three ways to begin anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from environment.faults import EnvironmentFault
from environment.host_step import HostStep
from environment.spaces import ObservationForm, all_finite, discrete_actions, host_spec


class HostVector:
    """A Gymnasium `VectorEnv` as a `HostEnv`.

    What follows an episode's end depends on the mode that the environment declares:

        SAME_STEP  the step returns the next episode's first observation; the last one is in
                   `info["final_obs"]`, and becomes `next_obs` (Gymnasium loses it if an
                   environment overwrites one array at every step)
        NEXT_STEP  the step returns the last observation; the next step ignores that copy's
                   action and returns the first observation: a row that is marked not `valid`
        DISABLED   the step returns the last observation, and the copies are reset here, by
                   `reset(options={"reset_mask": ...})`

    Args:
        env: The vector environment.
        name: What to call it in messages.
        registered: What Gymnasium knows of a copy; None where it is not registered.
        seeds: One for each copy. A vector environment that takes one seed only gets the first.
        owned: Whether `close()` closes it.
    """

    def __init__(
        self,
        env: VectorEnv,
        name: str,
        registered: RegisteredSpec | None,
        seeds: Sequence[int],
        *,
        owned: bool = True,
    ):
        self._form = ObservationForm(env.single_observation_space, name)
        num_actions, self._first_action = discrete_actions(env.single_action_space, name)
        self._mode = _autoreset_mode(env, name)
        self.spec = host_spec(name, self._form, num_actions, registered)
        self.num_envs = env.num_envs
        self._env, self._owned = env, owned
        takes_many = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._seed: Any = list(seeds) if takes_many else seeds[0]
        self._steps = 0
        self._resetting: np.ndarray | None = None

    def reset(self) -> np.ndarray:
        """Begin an episode in every copy; the observations [E, *obs]."""
        try:
            raw, _ = self._env.reset(seed=self._seed)
        except Exception as error:
            self._report(error, "reset()")
        self._seed = None
        self._resetting = np.zeros(self.num_envs, bool)
        self._lengths = np.zeros(self.num_envs, np.int32)
        self._returns = np.zeros(self.num_envs, np.float32)
        return self._observed(raw, "reset()")

    def step(self, action: np.ndarray) -> HostStep:
        """Step every copy with its `action`, [E] integers in [0, num_actions)."""
        if self._resetting is None:
            raise ValueError(f"{self.spec.name} was stepped before reset(): call reset() first.")
        if len(action) != self.num_envs:
            raise ValueError(f"step() got {len(action)} actions for {self.num_envs} copies.")
        try:
            raw, reward, terminated, truncated, info = self._env.step(action + self._first_action)
        except Exception as error:
            self._report(error, "step()")
        self._steps += 1
        valid = ~self._resetting
        reward = np.where(valid, self._rewards(reward), np.float32(0.0))
        terminated = np.logical_and(terminated, valid)
        truncated = np.logical_and(truncated, valid)
        ended = terminated | truncated
        self._returns += reward
        self._lengths += valid
        episode_return, episode_length = self._returns, self._lengths

        obs = next_obs = self._observed(raw, "step()")
        if ended.any():
            self._returns = np.where(ended, np.float32(0.0), episode_return)
            self._lengths = np.where(ended, np.int32(0), episode_length)
            obs, next_obs = self._around_the_end(obs, ended, info)
        else:
            episode_return, episode_length = episode_return.copy(), episode_length.copy()
        self._resetting = ended if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(ended)
        return HostStep(
            obs,
            reward,
            terminated,
            truncated,
            next_obs,
            valid,
            ended,
            episode_return,
            episode_length,
        )

    def close(self) -> None:
        """Close the vector environment, unless it was given ready-made."""
        if self._owned:
            self._env.close()

    def _around_the_end(
        self, obs: np.ndarray, ended: np.ndarray, info: dict[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """What to act on next and what the step led to, from what it returned."""
        if self._mode is AutoresetMode.NEXT_STEP:
            return obs, obs
        if self._mode is AutoresetMode.DISABLED:
            try:
                raw, _ = self._env.reset(options={"reset_mask": ended.copy()})
            except Exception as error:
                self._report(error, "reset()")
            fresh = self._observed(raw, "reset()")
            return np.where(_aligned(ended, obs), fresh, obs), obs
        if "final_obs" not in info:
            raise EnvironmentFault(
                f"{self.spec.name} ended an episode without info['final_obs'], which its "
                "autoreset mode SAME_STEP promises: the last observation is lost, and with it "
                "the value after a time limit."
            )
        next_obs = obs.copy()
        for copy in np.flatnonzero(ended):
            next_obs[copy] = self._form.encoded(info["final_obs"][copy])
        self._check_finite(next_obs, "step()")
        return obs, next_obs

    def _observed(self, raw: Any, method: str) -> np.ndarray:
        try:
            obs = self._form.encoded(raw, self.num_envs)
        except EnvironmentFault as fault:
            self._report(fault, method)
        self._check_finite(obs, method)
        return obs

    def _rewards(self, reward: Any) -> np.ndarray:
        reward = np.asarray(reward, np.float32)
        if reward.shape != (self.num_envs,) or not np.isfinite(reward).all():
            self._report(
                EnvironmentFault(
                    f"{self.spec.name} returned the rewards {reward}, expected {self.num_envs} "
                    "finite numbers."
                ),
                "step()",
            )
        return reward

    def _check_finite(self, obs: np.ndarray, method: str) -> None:
        if not all_finite(obs):
            copy = int(np.argmin(np.isfinite(obs).reshape(self.num_envs, -1).all(axis=1)))
            fault = EnvironmentFault(
                f"{self.spec.name} returned an observation with NaN or infinite numbers for copy "
                f"{copy} of {self.num_envs}: {np.array2string(obs[copy], threshold=20)}."
            )
            self._report(fault, method)

    def _report(self, error: Exception, method: str) -> NoReturn:
        where = f"(a vector of {self.num_envs} copies, after {self._steps} steps)"
        if isinstance(error, EnvironmentFault):
            raise EnvironmentFault(f"{error} It happened in {method} {where}.") from error.__cause__
        raise EnvironmentFault(
            f"{self.spec.name} raised {type(error).__name__} in {method} {where}: {error}"
        ) from error


def _autoreset_mode(env: VectorEnv, name: str) -> AutoresetMode:
    declared = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(declared)
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise ValueError(
            f"{name} declares the autoreset mode {declared!r}, expected one of {modes} in "
            "metadata['autoreset_mode']. Without it nobody knows which observation follows an "
            "episode's end."
        ) from None


def _aligned(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *[1] * (like.ndim - 1))
