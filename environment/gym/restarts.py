"""Environments that are made anew after a fault: how often, with which seeds, and where."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from kytolly.environment.faults import EnvironmentFault, one_line

MAX_IN_A_ROW = 3  # restarts of an environment that has not made a step since the previous one


class Restarts:
    """Counts the restarts of `E` environments.

    Args:
        name: What to call the environments in messages.
        seeds: Each environment's own seed; that of a new one follows from it.

    Attributes:
        counts: [E] restarts of each environment.
        total: Restarts in this process.
    """

    def __init__(self, name: str, seeds: Sequence[int]):
        self.name, self.seeds = name, list(seeds)
        self.counts = np.zeros(len(self.seeds), np.int64)
        self.total = 0
        self._in_a_row = [0] * len(self.seeds)
        self._when = [-1] * len(self.seeds)

    def next_seed(self, index: int, fault: object, before: int, now: int) -> int:
        """Count a restart, say so, and give the seed of the new environment.

        Args:
            index: The environment.
            fault: What went wrong.
            before: Steps that it had made before the call that failed.
            now: Steps at which the new one begins.

        Raises:
            EnvironmentFault: It has failed too often without a step in between.
        """
        again = self._when[index] == before
        self._in_a_row[index] = self._in_a_row[index] + 1 if again else 1
        self._when[index] = now
        if self._in_a_row[index] > MAX_IN_A_ROW:
            raise EnvironmentFault(
                f"{fault} It was made anew {MAX_IN_A_ROW} times and failed each time before its "
                "first step, so the run ends although on_env_fault is 'restart'."
            )
        self.counts[index] += 1
        self.total += 1
        if self.total & (self.total - 1) == 0:  # 1, 2, 4, 8: it may fail at every second step
            warnings.warn(
                one_line(
                    f"{fault} The environment is made anew, and its episode counts as truncated "
                    f"(restart {self.total} of these {len(self.counts)} environments)."
                ),
                stacklevel=2,
            )
        words = [self.seeds[index], int(self.counts[index])]
        return int(np.random.SeedSequence(words).generate_state(1)[0])


class Replaceable:
    """An environment in this process, in whose place comes a new one when it raises.

    Args:
        env: The environment.
        make: Makes another one.
        restarts: Counts them, and stops those that fail again and again.
        index: Its place among all environments.

    Attributes:
        failed: The last step raised: its outcome is the beginning of a new episode.
    """

    def __init__(
        self, env: gymnasium.Env, make: Callable[[], gymnasium.Env], restarts: Restarts, index: int
    ):
        self.env, self.make, self.restarts, self.index = env, make, restarts, index
        self.observation_space = getattr(env, "observation_space", None)
        self.action_space = getattr(env, "action_space", None)
        self.steps, self.failed = 0, False

    def step(self, action: object) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """A step; where it raises, the first observation of a new environment, and no reward."""
        try:
            outcome = self.env.step(action)
            self.steps += 1
            return outcome
        except (Exception, SystemExit) as error:
            obs, _ = self._begin_anew(error, "step()", self.steps)
            self.failed = True
            return obs, 0.0, False, False, {}

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, in a new environment if this one cannot."""
        try:
            return self.env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            return self._begin_anew(error, "reset()", self.steps)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _begin_anew(
        self, error: BaseException, method: str, before: int
    ) -> tuple[Any, dict[str, Any]]:
        while True:
            fault = (
                f"{self.restarts.name}: environment {self.index} raised {type(error).__name__} in "
                f"{method}: {error}"
            )
            seed = self.restarts.next_seed(self.index, fault, before, self.steps)
            with contextlib.suppress(Exception, SystemExit):
                self.env.close()
            try:
                self.env = self.make()
                return self.env.reset(seed=seed)
            except (Exception, SystemExit) as again:
                error, method, before = again, "a new one", self.steps
