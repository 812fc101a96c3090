"""Environments in this process that are made anew when they raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from kytolly.environment.gym.restarts import Restarts
from kytolly.environment.gym.separate import SeparateEnvs
from kytolly.environment.gym.step import HostStep


class Replaceable:
    """An environment that another one takes the place of when it raises.

    Args:
        env: The first one.
        make: Makes another one.
        restarts: Counts them.
        index: This one's place.

    Attributes:
        failed: Whether the latest step raised: its outcome is the beginning of a new episode.
    """

    def __init__(
        self, env: gymnasium.Env, make: Callable[[], gymnasium.Env], restarts: Restarts, index: int
    ):
        self.env, self.make, self.restarts, self.index = env, make, restarts, index
        self.observation_space = getattr(env, "observation_space", None)
        self.action_space = getattr(env, "action_space", None)
        self.steps, self.failed = 0, False

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict]:
        """A step; where it raises, the first observation of a new environment, and no reward."""
        try:
            outcome = self.env.step(action)
            self.steps += 1
            return outcome
        except (Exception, SystemExit) as error:
            obs, _ = self._begin_anew(error, "step()", self.steps)
            self.failed = True
            return obs, 0.0, False, False, {}

    def reset(self, *, seed: int | None = None) -> Any:
        """Begin an episode, in a new environment if this one cannot."""
        try:
            return self.env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            return self._begin_anew(error, "reset()", self.steps)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _begin_anew(self, error: BaseException, method: str, before: int) -> Any:
        while True:
            fault = (
                f"{self.restarts.name}: environment {self.index} raised {type(error).__name__} in "
                f"{method}: {error}"
            )
            seed = self.restarts.next_seed(self.index, fault, before, self.steps)
            self._close_quietly()
            try:
                self.env = self.make()
                return self.env.reset(seed=seed)
            except (Exception, SystemExit) as again:
                error, method, before = again, "a new one", self.steps

    def _close_quietly(self) -> None:
        try:
            self.env.close()
        except (Exception, SystemExit):
            return


class RestartingEnvs(SeparateEnvs):
    """`SeparateEnvs` of `Replaceable` environments: a step that raised is no `valid` row.

    Args:
        envs: The environments.
        name: What to call them in messages.
        known_spec: What Gymnasium knows of one.
        seeds: One for each.
        restarts: Counts those that were made anew.
        time_limit: Steps after which to truncate an episode; None where the environments do it.
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
        given: Any = envs
        super().__init__(given, name, known_spec, seeds, time_limit=time_limit)
        self.replaceable, self.restarts, self._seen = list(envs), restarts, 0

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment with its `action`; begin anew where one raises."""
        step = super().step(action)
        if self._seen == self.restarts.total:
            return step
        self._seen = self.restarts.total
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
