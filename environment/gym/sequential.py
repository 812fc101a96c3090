"""Single Gymnasium environments, stepped one after the other with immediate resets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fabs, inf, isfinite
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from kytolly.environment.faults import (
    EnvironmentFault,
    close_or_warn,
    display_text,
    one_line,
    raise_fault,
)
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.restarts import Replaceable, Restarts
from kytolly.environment.gym.saved_state import NotSavable
from kytolly.environment.gym.spaces import all_finite, host_spec, observation_form
from kytolly.environment.gym.step import (
    MAX_REWARD,
    GymEnv,
    HostStep,
    Observation,
    done_flags,
    environment_seeds,
    require_reward,
)

_NUMBERS = frozenset([float, int, bool, np.float64, np.float32])  # rewards that need one look
_FLOAT32 = np.dtype(np.float32)


class SequentialEnvs:
    """`E` single environments as a `HostEnv`.

    A loop of our own instead of Gymnasium's SyncVectorEnv: an episode's end and the first
    observation of the next one share a step (SAME_STEP), so every row is a transition, and the
    overhead per step is a small part of SyncVectorEnv's.

    Args:
        envs: The environments, all with the same spaces.
        name: What to call them in messages.
        known_spec: What Gymnasium knows of one; None where it is not registered.
        seeds: One for each environment.
        time_limit: Steps after which to truncate an episode; None where the environments do it.
        owned: `close()` closes the environments.
    """

    has_dummy_steps = False
    restarts: Restarts | None = None

    def __init__(
        self,
        envs: Sequence[gymnasium.Env] | Sequence[Replaceable],
        name: str,
        known_spec: RegisteredSpec | None,
        seeds: Sequence[int],
        *,
        time_limit: int | None = None,
        owned: bool = True,
    ):
        observation_space, action_space = _spaces(envs[0])
        self._actions = ActionForm(action_space, name)
        self._form = observation_form(observation_space, name, self._actions.space)
        _require_equal_spaces(envs, name)
        self.spec = host_spec(name, self._form, self._actions, known_spec)
        self.num_envs = len(envs)
        self._obs_shape = (self.num_envs, *self._form.shape)
        self._envs, self._owned = list(envs), owned
        self.given: GymEnv | Replaceable | None = envs[0]
        self._seeds: Sequence[int | None] = list(seeds)
        self._steppers: list[Callable[[Any], tuple[Any, Any, Any, Any, dict[str, Any]]]] = []
        self._pending_step: HostStep | None = None
        self._limit = inf if time_limit is None else time_limit
        self._time = 0  # steps since reset()
        self._starts: list[int] = []  # the time at which each environment began its episode
        self._next_limit = inf  # the first time at which an episode may reach the limit
        self._returns: list[float] = []
        self._rewards: Sequence[float | None] = []  # of the previous step, and the same as an array
        self._reward_array = np.empty(0, np.float32)
        self._no, self._yes = (_constant(value, self.num_envs) for value in (False, True))
        self._no_return = _constant(np.float32(0), self.num_envs)
        self._no_length = _constant(np.int32(0), self.num_envs)

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode in every environment; observations [E, *obs], or a dict of them."""
        if seed is not None:
            self._seeds = environment_seeds(seed, self.num_envs)
        if self._pending_step is not None:
            raise ValueError(f"{self.spec.name}: reset() before the finish_step() of a step.")
        self._time, self._starts = 0, [0] * self.num_envs
        self._next_limit, self._returns = self._limit, [0.0] * self.num_envs
        self._rewards = [None] * self.num_envs
        obs = np.stack([self._first_obs(index) for index in range(self.num_envs)])
        self._seeds = [None] * self.num_envs
        self._steppers = [env.step for env in self._envs]
        return self._form.agent_view(obs)

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment with its `action`, [E] or [E, D] as the spec says."""
        if len(action) != len(self._steppers):
            self._refuse_step(len(action))
        actions = self._actions.separate(action)
        form, returns, array = self._form, self._returns, np.ndarray
        ready_shape, float32 = form.ready_shape, _FLOAT32
        next_obs = np.empty(self._obs_shape, form.dtype)
        rewards: list[Any] = []
        ends: dict[int, tuple[bool, bool]] = {}
        index = -1
        try:
            for index, step in enumerate(self._steppers):
                raw, reward, terminated, truncated, _ = step(actions[index])
                if (
                    type(raw) is not array
                    or raw.shape != ready_shape
                    or (raw.dtype is not float32 and raw.dtype.kind not in "fiub")
                ):
                    raw = form.encode(raw)
                next_obs[index] = raw
                rewards.append(reward)
                returns[index] += reward
                if terminated is not False or truncated is not False:
                    flags = done_flags(terminated, truncated, self.spec.name)
                    if True in flags:
                        ends[index] = flags
            changed = rewards != self._rewards
        except (Exception, SystemExit) as error:
            self._report_step(index, error, rewards)
        if changed:
            self._convert_rewards(rewards)
        self._time += 1
        if self._time >= self._next_limit:
            ends = self._with_time_limit(ends)
        seen = next_obs
        if not form.plain:
            form.allow_all(next_obs, list(ends))
            self._check(next_obs)
            seen = form.agent_view(next_obs)
        elif not all_finite(next_obs):
            self._check(next_obs)
        if ends:
            return self._begin_episodes(next_obs, seen, ends)
        no, paid = self._no, self._reward_array
        return tuple.__new__(  # half the time of HostStep(...)
            HostStep, (seen, paid, no, no, seen, self._yes, no, self._no_return, self._no_length)
        )

    def begin_step(self, action: np.ndarray) -> None:
        """Step every environment with its `action`: all the work is done here."""
        if self._pending_step is not None:
            raise ValueError(f"{self.spec.name}: begin_step() twice, without a finish_step().")
        self._pending_step = self.step(action)

    def finish_step(self) -> HostStep:
        """The outcome of the step that `begin_step()` took."""
        step, self._pending_step = self._pending_step, None
        if step is None:
            raise ValueError(f"{self.spec.name}: finish_step() without a begin_step().")
        return step

    def get_state(self) -> dict[str, Any]:
        """The environments, and what is counted of their episodes."""
        counts = {"time": self._time, "starts": self._starts, "next_limit": self._next_limit}
        return {"envs": tuple(self._envs), "returns": self._returns, **counts}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if len(state["starts"]) != self.num_envs:
            raise NotSavable(f"it is of {len(state['starts'])} environments, not {self.num_envs}")
        self._time, self._starts = state["time"], state["starts"]
        self._next_limit, self._returns = state["next_limit"], state["returns"]
        self._rewards = [None] * self.num_envs

    def close(self) -> None:
        """Close the environments, unless the caller made them."""
        if self._owned:
            for env in self._envs:
                close_or_warn(env, self.spec.name)

    def _begin_episodes(
        self, next_obs: np.ndarray, seen: Observation, ends: dict[int, tuple[bool, bool]]
    ) -> HostStep:
        """The outcome of a step that ended episodes: index -> (terminated, truncated)."""
        terminated, truncated, ended = np.zeros((3, self.num_envs), bool)
        episode_return = np.zeros(self.num_envs, np.float32)
        episode_length = np.zeros(self.num_envs, np.int32)
        obs = next_obs.copy()
        for index, (terminated[index], truncated[index]) in ends.items():
            ended[index] = True
            total = self._returns[index]
            if type(total) not in _NUMBERS or not fabs(total) <= MAX_REWARD:
                self._require_reward(index, total, "rewards with the sum")
            episode_return[index] = total
            episode_length[index] = self._time - self._starts[index]
            self._returns[index], self._starts[index] = 0.0, self._time
            obs[index] = self._first_obs(index)
        self._next_limit = min(self._starts) + self._limit
        return HostStep(
            self._form.agent_view(obs),
            self._reward_array,
            terminated,
            truncated,
            seen,
            self._yes,
            ended,
            episode_return,
            episode_length,
        )

    def _with_time_limit(self, ends: dict[int, tuple[bool, bool]]) -> dict[int, tuple[bool, bool]]:
        """`ends` with the episodes that reach the time limit at this step, in order."""
        ends = dict(ends)
        for index, start in enumerate(self._starts):
            if self._time - start == self._limit:
                ends[index] = (index in ends and ends[index][0], True)
        return dict(sorted(ends.items()))

    def _convert_rewards(self, rewards: Sequence[float]) -> None:
        """Make an array of rewards; it serves all following steps that pay the same."""
        array = np.empty(self.num_envs, np.float32)
        for index, reward in enumerate(rewards):
            if type(reward) not in _NUMBERS or not fabs(reward) <= MAX_REWARD:
                self._require_reward(index, reward)
            array[index] = reward
        array.flags.writeable = False
        self._rewards = [float(reward) for reward in rewards]
        self._reward_array = array

    def _first_obs(self, index: int) -> np.ndarray:
        try:
            outcome = self._envs[index].reset(seed=self._seeds[index])
            if not isinstance(outcome, tuple | list) or len(outcome) != 2:
                raise EnvironmentFault(
                    f"{self.spec.name} returned {display_text(outcome)}, expected "
                    "(observation, info)."
                )
            obs = self._form.encode(outcome[0])
        except (Exception, SystemExit) as error:
            self._report(index, error, "reset()")
        if not (self._form.plain and all_finite(obs)):
            self._check(obs[np.newaxis], index, "reset()")
        return obs

    def _check(self, rows: np.ndarray, first: int = 0, method: str = "step()") -> None:
        """Report what no agent could use in the rows of the environments from `first` on."""
        if (fault := self._form.first_fault(rows)) is not None:
            self._report(first + fault[0], fault[1], method)

    def _require_reward(self, index: int, reward: object, what: str = "the reward") -> None:
        try:
            require_reward(reward, self.spec.name, what)
        except EnvironmentFault as fault:
            self._report(index, fault, "step()")

    def _report_step(self, index: int, error: BaseException, rewards: Sequence[object]) -> NoReturn:
        """Report what went wrong in a step that paid `rewards` until then."""
        for payer, reward in enumerate(rewards):
            self._require_reward(payer, reward)
        traceback = error.__traceback__
        if isinstance(error, TypeError | ValueError) and traceback and not traceback.tb_next:
            older = " An environment for Gym before 0.26 returns four: give it the fifth."
            error = EnvironmentFault(  # the environment did not raise: its outcome does not fit
                f"{self.spec.name} returned what cannot be used ({error}), expected (observation, "
                f"reward, terminated, truncated, info).{older if 'unpack' in str(error) else ''}"
            )
        self._report(index, error, "step()")

    def _report(self, index: int, error: BaseException, method: str) -> NoReturn:
        steps = self._time - self._starts[index]
        where = f"(environment {index} of {self.num_envs}, after {steps} steps of an episode)"
        raise_fault(self.spec.name, error, method, where)

    def _refuse_step(self, actions: int) -> NoReturn:
        if not self._steppers:
            raise ValueError(f"{self.spec.name} was stepped before reset(): call reset() first.")
        raise ValueError(f"step() got {actions} actions for {self.num_envs} environments.")


class SingleEnv(SequentialEnvs):
    """One environment; where its observations are short, a step needs no loop and no list."""

    def step(self, action: np.ndarray) -> HostStep:
        """Step the environment with its `action`, [1] or [1, D] as the spec says."""
        if not self._form.short:
            return super().step(action)
        if len(action) != 1 or not self._steppers:
            self._refuse_step(len(action))
        reward: Any = 0.0
        single_action = self._actions.separate(action)[0]
        try:
            raw, reward, terminated, truncated, _ = self._steppers[0](single_action)
            if (
                type(raw) is np.ndarray
                and raw.shape == self._form.ready_shape
                and (raw.dtype is _FLOAT32 or raw.dtype.kind in "fiub")
            ):
                row = raw.astype(np.float32)
            else:
                row = self._form.encode(raw)
            self._returns[0] += reward
            changed = [reward] if reward != self._rewards[0] else None
            if terminated is not False or truncated is not False:
                terminated, truncated = done_flags(terminated, truncated, self.spec.name)
            ended = terminated or truncated
        except (Exception, SystemExit) as error:
            self._report_step(0, error, [reward])
        if changed:
            self._convert_rewards(changed)
        self._time += 1
        next_obs = row[np.newaxis]
        if not isfinite(sum(row.tolist())):
            self._check(next_obs)
        limited = self._time >= self._next_limit
        if ended or limited:
            end = (bool(terminated), bool(truncated or limited))
            return self._begin_episodes(next_obs, next_obs, {0: end})
        no, paid = self._no, self._reward_array
        return tuple.__new__(
            HostStep,
            (next_obs, paid, no, no, next_obs, self._yes, no, self._no_return, self._no_length),
        )


class RestartingEnvs(SequentialEnvs):
    """`SequentialEnvs` of `Replaceable` environments: a step that raised is no `valid` row.

    `restarts` counts those that were made anew; the other arguments are those of `SequentialEnvs`.
    """

    has_dummy_steps = True

    def __init__(
        self,
        envs: Sequence[Replaceable],
        name: str,
        known_spec: RegisteredSpec | None,
        seeds: Sequence[int],
        restarts: Restarts,
        time_limit: int | None,
    ):
        super().__init__(envs, name, known_spec, seeds, time_limit=time_limit)
        self.replaceable = list(envs)
        self.restarts: Restarts = restarts
        self._seen_restarts = 0

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment with its `action`; begin anew where one raises."""
        step = super().step(action)
        if self._seen_restarts == self.restarts.total:
            return step
        self._seen_restarts = self.restarts.total
        failed = [index for index, env in enumerate(self.replaceable) if env.failed]
        return self._without_rows(step, failed) if failed else step

    def get_state(self) -> dict[str, Any]:
        """The environments, and what is counted of their episodes."""
        envs = [env.env for env in self.replaceable]
        return {**super().get_state(), "envs": envs, "restarts": self.restarts.counts}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        super().set_state(state)
        if "restarts" in state:
            self.restarts.counts[:] = state["restarts"]

    def _without_rows(self, step: HostStep, failed: list[int]) -> HostStep:
        """The step, in which the environments that `failed` made none and began an episode."""
        valid, ended, truncated = (
            np.array(column) for column in (step.valid, step.ended, step.truncated)
        )
        returns, lengths = np.array(step.episode_return), np.array(step.episode_length)
        for index in failed:
            self.replaceable[index].failed = valid[index] = False
            if ended[index]:  # the time limit counted the step
                lengths[index] -= 1
            else:
                returns[index] = self._returns[index]
                lengths[index] = self._time - self._starts[index] - 1
                self._returns[index], self._starts[index] = 0.0, self._time
            ended[index] = truncated[index] = lengths[index] > 0
        self._next_limit = min(self._starts) + self._limit
        return step._replace(
            valid=valid,
            ended=ended,
            truncated=truncated,
            episode_return=returns,
            episode_length=lengths,
        )


def _spaces(env: gymnasium.Env | Replaceable) -> tuple[Any, Any]:
    """Spaces of observations and actions; None for one that the environment does not have."""
    return getattr(env, "observation_space", None), getattr(env, "action_space", None)


def _require_equal_spaces(envs: Sequence[gymnasium.Env] | Sequence[Replaceable], name: str) -> None:
    expected = _spaces(envs[0])
    for index, env in enumerate(envs):
        if _spaces(env) != expected:
            raise ValueError(
                one_line(
                    f"environment {index} of {name} has the spaces {_spaces(env)}, environment 0 "
                    f"has {expected}. All must have the same."
                )
            )


def _constant(value: bool | np.generic, count: int) -> np.ndarray:
    """A read-only array: shared by all steps at which nothing happened."""
    array = np.full(count, value)
    array.flags.writeable = False
    return array
