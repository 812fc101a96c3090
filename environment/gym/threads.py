"""Single Gymnasium environments that step at the same time, each in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from kytolly.environment.gym.sequential import SequentialEnvs
from kytolly.environment.gym.step import HostStep


class EnvThread:
    """An environment whose episodes pass in a thread.

    Args:
        env: The environment.
    """

    def __init__(self, env: gymnasium.Env):
        self.env = env
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue = queue.SimpleQueue()
        # A daemon: an environment that hangs must not keep Python from ending.
        threading.Thread(target=self._serve, name="kytolly-env", daemon=True).start()

    def begin_step(self, action: Any) -> None:
        """Let the environment step; `step` gives the outcome."""
        self._calls.put((self.env.step, (action,), {}))

    def step(self, action: Any) -> Any:
        """The outcome of the step that has begun."""
        return self._outcome()

    def reset(self, **options: Any) -> Any:
        """Begin an episode."""
        self._calls.put((self.env.reset, (), options))
        return self._outcome()

    def close(self) -> None:
        """Close the environment and end the thread."""
        self._calls.put((self.env.close, (), {}))
        self._calls.put(None)
        self._outcome()

    def _outcome(self) -> Any:
        value, error = self._outcomes.get()
        if error is not None:
            raise error
        return value

    def _serve(self) -> None:
        call: tuple[Callable[..., Any], tuple, dict[str, Any]] | None
        while (call := self._calls.get()) is not None:
            function, arguments, options = call
            try:
                self._outcomes.put((function(*arguments, **options), None))
            except BaseException as error:
                self._outcomes.put((None, error))


class ThreadedEnvs(SequentialEnvs):
    """`SequentialEnvs` that step at the same time, for environments that wait in their steps.

    Python computes in one thread at a time: of environments that compute nothing is gained. What
    they return is the same.
    """

    def __init__(self, envs: list[gymnasium.Env], *arguments: Any, **options: Any):
        super().__init__(envs, *arguments, **options)
        self._threads = [EnvThread(env) for env in envs]
        self._envs: list[Any] = list(self._threads)

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment with its `action`, [E] or [E, D] as the spec says."""
        if len(action) == len(self._steppers):
            for thread, one in zip(self._threads, self._actions.separate(action), strict=True):
                thread.begin_step(one)
        return super().step(action)

    def get_state(self) -> dict[str, Any]:
        """The environments, and what is counted of their episodes."""
        return {**super().get_state(), "envs": tuple(thread.env for thread in self._threads)}
