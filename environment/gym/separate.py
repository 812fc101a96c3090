"""Single Gymnasium environments, stepped one after the other with immediate resets."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.spaces import all_finite, host_spec, observation_form
from kytolly.environment.gym.step import HostStep


class HostCopies:
    """`E` single environments as a `HostEnv`.

    A loop of our own instead of Gymnasium's SyncVectorEnv: an episode's end and the first
    observation of the next one share a step (SAME_STEP), so every row is a transition, and a
    step of one CartPole costs a third.

    Args:
        envs: The copies, all with the same spaces.
        name: What to call them in messages.
        registered: What Gymnasium knows of a copy; None where it is not registered.
        seeds: One for each copy.
        time_limit: Steps after which to truncate an episode; None where the copies do it.
        owned: Whether `close()` closes the copies.
    """

    has_dummy_steps = False

    def __init__(
        self,
        envs: Sequence[gymnasium.Env],
        name: str,
        registered: RegisteredSpec | None,
        seeds: Sequence[int],
        *,
        time_limit: int | None = None,
        owned: bool = True,
    ):
        self._actions = ActionForm(envs[0].action_space, name)
        self._form = observation_form(envs[0].observation_space, name, self._actions.space)
        for copy, env in enumerate(envs):
            spaces = (env.observation_space, env.action_space)
            if spaces != (envs[0].observation_space, envs[0].action_space):
                raise ValueError(
                    f"copy {copy} of {name} has the spaces {spaces}, copy 0 has "
                    f"{(envs[0].observation_space, envs[0].action_space)}. The copies must agree."
                )
        self.spec = host_spec(name, self._form, self._actions.space, registered)
        self.num_envs = len(envs)
        self._obs_shape = (self.num_envs, *self._form.shape)
        self._envs, self._owned = list(envs), owned
        self._seeds: Sequence[int | None] = list(seeds)
        self._time_limit = -1 if time_limit is None else time_limit  # -1: no length reaches it
        self._steppers: list[Any] = []
        self._begun: HostStep | None = None
        self._lengths: list[int] = []
        self._returns: list[float] = []
        self._no, self._yes = (_constant(value, self.num_envs) for value in (False, True))
        self._no_return = _constant(np.float32(0), self.num_envs)
        self._no_length = _constant(np.int32(0), self.num_envs)

    def reset(self) -> Any:
        """Begin an episode in every copy; the observations [E, *obs], or a dict of them."""
        if self._begun is not None:
            raise ValueError(f"{self.spec.name}: reset() before the finish_step() of a step.")
        self._lengths, self._returns = [0] * self.num_envs, [0.0] * self.num_envs
        obs = np.stack([self._first_obs(copy) for copy in range(self.num_envs)])
        self._seeds = [None] * self.num_envs
        self._steppers = [env.step for env in self._envs]
        return self._form.presented(obs)

    def step(self, action: np.ndarray) -> HostStep:
        """Step every copy with its `action`, [E] or [E, D] as the spec says."""
        if len(action) != len(self._steppers):
            self._refuse_step(len(action))
        actions = self._actions.each(action)
        form, limit, lengths, returns = self._form, self._time_limit, self._lengths, self._returns
        ready_shape = form.ready_shape
        next_obs = np.empty(self._obs_shape, form.dtype)
        rewards, ends, copy = np.empty(self.num_envs, np.float32), [], -1
        try:
            for copy, step in enumerate(self._steppers):
                raw, reward, terminated, truncated, _ = step(actions[copy])
                if type(raw) is not np.ndarray or raw.shape != ready_shape:
                    raw = form.encoded(raw)
                next_obs[copy] = raw
                if not isfinite(reward):
                    raise EnvironmentFault(f"{self.spec.name} returned the reward {reward}.")
                rewards[copy] = reward
                returns[copy] += reward
                lengths[copy] = length = lengths[copy] + 1
                if terminated or truncated or length == limit:
                    ends.append((copy, bool(terminated), bool(truncated or length == limit)))
        except Exception as error:
            self._report(copy, error, "step()")
        seen, no = next_obs, self._no
        if not form.plain:
            form.allow_all(next_obs, [copy for copy, _, _ in ends])
            self._check(next_obs)
            seen = form.presented(next_obs)
        elif not all_finite(next_obs):
            self._check(next_obs)
        if ends:
            return self._step_with_resets(next_obs, seen, rewards, ends)
        return HostStep(
            seen, rewards, no, no, seen, self._yes, no, self._no_return, self._no_length
        )

    def begin_step(self, action: np.ndarray) -> None:
        """Step every copy with its `action`: all the work is done here."""
        if self._begun is not None:
            raise ValueError(f"{self.spec.name}: begin_step() twice, without a finish_step().")
        self._begun = self.step(action)

    def finish_step(self) -> HostStep:
        """The step that was begun."""
        if self._begun is None:
            raise ValueError(f"{self.spec.name}: finish_step() without a begin_step().")
        step, self._begun = self._begun, None
        return step

    def close(self) -> None:
        """Close the copies, unless they were given ready-made."""
        if self._owned:
            for env in self._envs:
                env.close()

    def _step_with_resets(
        self,
        next_obs: np.ndarray,
        seen: Any,
        reward: np.ndarray,
        ends: list[tuple[int, bool, bool]],
    ) -> HostStep:
        terminated, truncated, ended = (np.zeros(self.num_envs, bool) for _ in range(3))
        episode_return = np.zeros(self.num_envs, np.float32)
        episode_length = np.zeros(self.num_envs, np.int32)
        obs = next_obs.copy()
        for copy, terminated[copy], truncated[copy] in ends:
            ended[copy] = True
            episode_return[copy], episode_length[copy] = self._returns[copy], self._lengths[copy]
            self._returns[copy], self._lengths[copy] = 0.0, 0
            obs[copy] = self._first_obs(copy)
        return HostStep(
            self._form.presented(obs),
            reward,
            terminated,
            truncated,
            seen,
            self._yes,
            ended,
            episode_return,
            episode_length,
        )

    def _first_obs(self, copy: int) -> np.ndarray:
        try:
            raw, _ = self._envs[copy].reset(seed=self._seeds[copy])
            obs = self._form.encoded(raw)
        except Exception as error:
            self._report(copy, error, "reset()")
        self._check(obs[np.newaxis], copy, "reset()")
        return obs

    def _check(self, rows: np.ndarray, first: int = 0, method: str = "step()") -> None:
        """Report what no agent could use in the rows of the copies from `first` on."""
        found = self._form.fault_in(rows)
        if found is not None:
            self._report(first + found[0], found[1], method)

    def _report(self, copy: int, error: Exception, method: str) -> NoReturn:
        where = f"(copy {copy} of {self.num_envs}, after {self._lengths[copy]} steps of an episode)"
        if isinstance(error, EnvironmentFault):
            raise EnvironmentFault(f"{error} It happened in {method} {where}.") from error.__cause__
        raise EnvironmentFault(
            f"{self.spec.name} raised {type(error).__name__} in {method} {where}: {error}"
        ) from error

    def _refuse_step(self, actions: int) -> NoReturn:
        if not self._steppers:
            raise ValueError(f"{self.spec.name} was stepped before reset(): call reset() first.")
        raise ValueError(f"step() got {actions} actions for {self.num_envs} copies.")


def _constant(value: Any, count: int) -> np.ndarray:
    """A read-only array: shared by all steps at which nothing happened."""
    array = np.full(count, value)
    array.flags.writeable = False
    return array
