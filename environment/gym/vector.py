"""Gymnasium's vector environments, in any of its three autoreset modes."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from kytolly.environment.faults import EnvironmentFault, close_or_warn, display_text, raise_fault
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.processes import CLOSE_SECONDS, ProcessVector
from kytolly.environment.gym.restarts import Replaceable
from kytolly.environment.gym.saved_state import NotSavable
from kytolly.environment.gym.spaces import host_spec, observation_form
from kytolly.environment.gym.step import (
    MAX_REWARD,
    GymEnv,
    HostStep,
    Observation,
    done_flags,
    environment_seeds,
)

REWARDS = f"finite numbers of at most {MAX_REWARD:.2g}"


class CheckedFlags(gymnasium.Wrapper):
    """Refuses what is no bool before a vector environment of Gymnasium makes it one.

    Args:
        env: One of its environments.
        name: What to call it in messages.
    """

    def __init__(self, env: gymnasium.Env, name: str):
        super().__init__(env)
        self.name = name

    def step(self, action: Any) -> Any:
        """The outcome that the environment returned."""
        outcome = self.env.step(action)
        _, _, terminated, truncated, _ = outcome
        if terminated is not False or truncated is not False:
            done_flags(terminated, truncated, self.name)
        return outcome


class HostVector:
    """A Gymnasium `VectorEnv` as a `HostEnv`.

    What follows an episode's end depends on the autoreset mode that the environment declares:

        SAME_STEP  the step returns the next episode's first observation; the last one is in
                   `info["final_obs"]`, and becomes `next_obs` (Gymnasium loses it if an
                   environment overwrites one array at every step)
        NEXT_STEP  the step returns the last observation; the next step is a dummy: it ignores the
                   action and returns the first observation, and its row is not `valid`
        DISABLED   the step returns the last observation; the environment is reset here, by
                   `reset(options={"reset_mask": ...})`

    Args:
        env: The vector environment, or our own processes.
        name: What to call it in messages.
        known_spec: What Gymnasium knows of one environment; None where it is not registered.
        seeds: One for each environment; where only one seed is taken, the first.
        owned: `close()` closes it.
        timeout_seconds: Most that a reset or a step in processes may take.

    Attributes:
        processes: Our own processes; None where the environment has none.
    """

    def __init__(
        self,
        env: VectorEnv | ProcessVector,
        name: str,
        known_spec: RegisteredSpec | None,
        seeds: Sequence[int],
        *,
        owned: bool = True,
        timeout_seconds: float = 60.0,
    ):
        observation_space: Any = getattr(env, "single_observation_space", None)
        action_space: Any = getattr(env, "single_action_space", None)
        self._actions = ActionForm(action_space, name)
        self._form = observation_form(observation_space, name, self._actions.space)
        self._mode = autoreset_mode(env, name)
        self.processes = env if isinstance(env, ProcessVector) else None
        vector = None if isinstance(env, ProcessVector) else env
        self.given: GymEnv | Replaceable | None = vector
        self.restarts = None if self.processes is None else self.processes.restarts
        self.has_dummy_steps = bool(self._mode is AutoresetMode.NEXT_STEP or self.restarts)
        self.spec = host_spec(name, self._form, self._actions, known_spec)
        self.num_envs = env.num_envs
        self._env: Any = env
        self._owned, self._timeout, self._broken = owned, timeout_seconds, False
        inner = None if vector is None else vector.unwrapped
        self._takes_many = inner is None or isinstance(inner, SyncVectorEnv | AsyncVectorEnv)
        self._seed: Any = list(seeds) if self._takes_many else seeds[0]
        # A subclass that overrides step() means it to be called.
        step = getattr(type(env), "step", None)
        self._splits = self.processes is not None or step is AsyncVectorEnv.step
        self._checked: list[CheckedFlags] = []
        if isinstance(inner, SyncVectorEnv) and type(inner).step is SyncVectorEnv.step:
            names = [f"environment {index} of {name}" for index in range(env.num_envs)]
            self._checked = list(map(CheckedFlags, inner.envs, names))
        self._outcome: Any = None  # of a pending step that could not be split
        self._pending = False
        self._steps = 0
        self._resetting: np.ndarray | None = None

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode in every environment; observations [E, *obs], or a dict of them."""
        if seed is not None:
            seeds = environment_seeds(seed, self.num_envs)
            self._seed = seeds if self._takes_many else seeds[0]
        if self._pending:
            raise ValueError(f"{self.spec.name}: reset() before the finish_step() of a step.")
        try:
            if self._splits:
                self._env.reset_async(seed=self._seed)
                raw, _ = self._env.reset_wait(self._timeout)
            else:
                raw, _ = self._env.reset(seed=self._seed)
        except Exception as error:
            self._report(error, "reset()")
        self._seed = None
        self._resetting = np.zeros(self.num_envs, bool)
        self._lengths = np.zeros(self.num_envs, np.int32)
        self._returns = np.zeros(self.num_envs, np.float32)
        obs = self._encode(raw, "reset()")
        self._check(obs, "reset()")
        return self._form.agent_view(obs)

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment with its `action`, [E] or [E, D] as the spec says."""
        self.begin_step(action)
        return self.finish_step()

    def begin_step(self, action: np.ndarray) -> None:
        """Give every environment its `action`; Gymnasium's processes work until `finish_step()`."""
        if self._resetting is None:
            raise ValueError(f"{self.spec.name} was stepped before reset(): call reset() first.")
        if self._pending:
            raise ValueError(f"{self.spec.name}: begin_step() twice, without a finish_step().")
        if len(action) != self.num_envs:
            raise ValueError(f"step() got {len(action)} actions for {self.num_envs} environments.")
        actions = self._actions.batch(action)
        try:
            if self._splits:
                self._env.step_async(actions)
            else:
                self._outcome = self._step_checked(actions)
        except Exception as error:
            self._report(error, "step()")
        self._pending = True

    def _step_checked(self, actions: np.ndarray) -> Any:
        """A step; each environment of a SyncVectorEnv is looked at before its bools are made."""
        if not self._checked:
            return self._env.step(actions)
        vector: Any = self._env.unwrapped
        envs, vector.envs = vector.envs, self._checked
        try:
            return self._env.step(actions)
        finally:
            vector.envs = envs

    def finish_step(self) -> HostStep:
        """Wait for the pending step, and begin new episodes where one ended."""
        if not self._pending or self._resetting is None:
            raise ValueError(f"{self.spec.name}: finish_step() without a begin_step().")
        self._pending = False
        try:
            outcome = self._env.step_wait(self._timeout) if self._splits else self._outcome
            raw, reward, terminated, truncated, info = outcome
        except Exception as error:
            self._report(error, "step()")
        self._steps += 1
        valid, failed = ~self._resetting, info.get("restarted") if self.processes else None
        if failed is not None:
            valid &= ~failed
        rewards = self._row(reward, "the rewards ", _are_rewards, REWARDS)
        reward = np.where(valid, rewards.astype(np.float32), np.float32(0.0))
        terminated = self._row(terminated, "terminated=", _are_flags, "bools").astype(bool) & valid
        truncated = self._row(truncated, "truncated=", _are_flags, "bools").astype(bool) & valid
        if failed is not None:  # their episodes end with the previous step
            truncated |= failed & (self._lengths > 0)
        ended = terminated | truncated
        self._returns += reward
        self._lengths += valid
        episode_return, episode_length = self._returns, self._lengths

        obs = self._encode(raw, "step()")
        if self._mode is not AutoresetMode.SAME_STEP:
            self._form.allow_all(obs, ended)
        self._check(obs, "step()")
        if ended.any():
            self._returns = np.where(ended, np.float32(0.0), episode_return)
            self._lengths = np.where(ended, np.int32(0), episode_length)
            obs, next_obs = self._obs_and_next_obs(obs, ended & valid, info)
        else:
            obs = next_obs = self._form.agent_view(obs)
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

    def get_state(self) -> dict[str, Any]:
        """The environments, and what is counted of their episodes."""
        if self._broken:
            raise NotSavable(f"{self.spec.name} did something wrong before")
        env = self._env if self.processes is None else self.processes.get_state()
        counts = {"returns": self._returns, "lengths": self._lengths, "steps": self._steps}
        if self.restarts is not None:
            counts["restarts"] = self.restarts.counts
        return {"env": env, "resetting": self._resetting, **counts}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if self.processes is not None:
            self.processes.set_state(state["env"])
        if self.restarts is not None and "restarts" in state:
            self.restarts.counts[:] = state["restarts"]
        self._resetting, self._steps = state["resetting"], state["steps"]
        self._returns, self._lengths = state["returns"], state["lengths"]

    def close(self) -> None:
        """Close the vector environment, unless the caller made it."""
        if not self._owned:
            return
        if self.processes is not None:
            self.processes.close()
        elif self._splits:
            end_processes(self._env)
        else:
            close_or_warn(self._env, self.spec.name)

    def _obs_and_next_obs(
        self, obs: np.ndarray, ended: np.ndarray, info: dict[str, Any]
    ) -> tuple[Observation, Observation]:
        """Observations to act on next, and those that the step led to."""
        view = self._form.agent_view
        if self._mode is AutoresetMode.NEXT_STEP:
            last = view(obs)
            return last, last
        if self._mode is AutoresetMode.DISABLED:
            try:
                raw, _ = self._env.reset(options={"reset_mask": ended.copy()})
            except Exception as error:
                self._report(error, "reset()")
            fresh = obs.copy()
            fresh[ended] = self._encode(raw, "reset()")[ended]
            self._check(fresh, "reset()")
            return view(fresh), view(obs)
        if not isinstance(info, dict) or "final_obs" not in info:
            raise EnvironmentFault(
                f"{self.spec.name} ended an episode without info['final_obs'], which its "
                "autoreset mode SAME_STEP promises: the last observation is lost, and with it "
                "the value after a time limit."
            )
        next_obs = obs.copy()
        try:
            for index in np.flatnonzero(ended):
                next_obs[index] = self._form.encode(info["final_obs"][index])
        except Exception as error:
            self._report(error, "step()")
        self._form.allow_all(next_obs, ended)
        self._check(next_obs, "step()")
        return view(obs), view(next_obs)

    def _encode(self, raw: object, method: str) -> np.ndarray:
        try:
            return self._form.encode(raw, self.num_envs)
        except Exception as error:
            self._report(error, method)

    def _row(
        self, given: object, what: str, fits: Callable[[np.ndarray], bool], wanted: str
    ) -> np.ndarray:
        """[E] numbers that fit, one for each environment; reports anything else."""
        try:
            values = np.asarray(given)
        except ValueError:  # lists of different lengths
            values = np.empty(0)
        is_row = values.shape == (self.num_envs,) and values.dtype.kind in "biuf"
        if not (is_row and fits(values)):
            fault = (
                f"{self.spec.name} returned {what}{display_text(given)}, expected "
                f"{self.num_envs} {wanted}."
            )
            self._report(EnvironmentFault(fault), "step()")
        return values

    def _check(self, rows: np.ndarray, method: str) -> None:
        """Report what no agent could use in the rows [E] of all environments."""
        if (fault := self._form.first_fault(rows)) is not None:
            self._report(EnvironmentFault(f"{fault[1]} That is environment {fault[0]}."), method)

    def _report(self, error: Exception, method: str) -> NoReturn:
        self._broken = True
        where = f"(a vector of {self.num_envs} environments, after {self._steps} steps)"
        if isinstance(error, multiprocessing.TimeoutError):
            raise EnvironmentFault(
                f"{self.spec.name} did not return from {method} within {self._timeout:g} seconds "
                f"{where}: it hangs, or it is slower than env_timeout_seconds allows."
            ) from error
        if (
            self._splits
            and self.processes is None
            and isinstance(error, EOFError | ConnectionError)
        ):
            sentinels = [process.sentinel for process in self._env.processes]
            ended = multiprocessing.connection.wait(sentinels, CLOSE_SECONDS)
            dead = [index for index, sentinel in enumerate(sentinels) if sentinel in ended]
            raise EnvironmentFault(
                f"{self.spec.name}: the process of environment {', '.join(map(str, dead)) or '?'} "
                f"ended in {method} {where}. An environment must not exit its process."
            ) from error
        raise_fault(self.spec.name, error, method, where)


def end_processes(env: AsyncVectorEnv, seconds: float = CLOSE_SECONDS) -> None:
    """Close an AsyncVectorEnv in limited time, which its own `close()` does not promise.

    Args:
        env: The vector environment; nothing is done if it is closed.
        seconds: What all environments together have for closing; then their processes are ended.
    """
    if env.closed:
        return
    pipes = [pipe for pipe in env.parent_pipes if pipe is not None and not pipe.closed]
    for pipe in pipes:
        try:
            pipe.send(("close", None))
        except OSError:  # its process is gone
            continue
    deadline = time.monotonic() + seconds
    for process in env.processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in env.processes:
        if process.is_alive():
            process.kill()
        process.join(seconds)
    for pipe in pipes:
        pipe.close()
    env.closed = True


def autoreset_mode(env: VectorEnv | ProcessVector, name: str) -> AutoresetMode:
    """The behavior at an episode's end that a vector environment declares."""
    declared = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(declared)
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise ValueError(
            f"{name} declares the autoreset mode {declared!r}, expected one of {modes} in "
            "metadata['autoreset_mode']. It says which observation follows an episode's end."
        ) from None


def _are_rewards(values: np.ndarray) -> bool:
    return bool((np.abs(values) <= MAX_REWARD).all())


def _are_flags(values: np.ndarray) -> bool:
    return values.dtype == np.bool_ or bool(np.isin(values, (0, 1)).all())
