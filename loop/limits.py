"""The limits of an evaluation's episodes, and of the time of a run."""

from __future__ import annotations

import math
import time

from kytolly.callback.base import TrainState
from kytolly.environment.spec import EnvSpec

STEP_LIMIT = 27_000  # env steps, as in Atari; the episode is cut there
MIN_STEP_LIMIT_IN_TRAINING = 1_000  # env steps
LONG_EPISODE = 10_000  # env steps: an environment's own limit that is higher, as Atari's, cuts late
LATE_SECONDS = 1.0  # after max_wall_seconds: then a rollout is left unfinished
END_SECONDS = 5.0  # for the evaluations after max_wall_seconds, or a tenth of it if that is more


class OutOfTime(Exception):
    """Time was up within a call of a loop; what it has learned until then stays."""


class Clock:
    """The deadlines of a run, as `time.perf_counter()` counts; infinite without a limit.

    Args:
        max_wall_seconds: Time for training, compilation included; None for no limit.

    Attributes:
        time_is_up: Training is over, because of the time.
        call_deadline: A call of the loop ends then, even within a rollout.
        evaluation_deadline: An evaluation during training is cut then.
        final_deadline: The evaluation after training is cut then.
    """

    def __init__(self, max_wall_seconds: float | None):
        self.max_wall_seconds, self.time_is_up = max_wall_seconds, False
        self.call_deadline = self.evaluation_deadline = self.final_deadline = math.inf
        self._deadline = math.inf

    def start(self) -> None:
        """Count from now on."""
        if self.max_wall_seconds is None:
            return
        grace = max(END_SECONDS, self.max_wall_seconds / 10)
        self._deadline = time.perf_counter() + self.max_wall_seconds
        self.call_deadline = self._deadline + LATE_SECONDS
        self.evaluation_deadline = self._deadline + grace / 2
        self.final_deadline = self._deadline + grace

    def look(self) -> None:
        """See whether time is up."""
        self.time_is_up |= time.perf_counter() > self._deadline


class EpisodeLimit:
    """The longest episode of an evaluator, and one warning when an episode was cut.

    Args:
        spec: Of the environment, whose own limit holds, unless it is above `LONG_EPISODE`.
        env_steps: Where an episode is cut otherwise; None takes `STEP_LIMIT`.
    """

    def __init__(self, spec: EnvSpec, env_steps: int | None = None):
        own = spec.max_episode_steps or 0
        self.name, self.is_own = spec.name, 0 < own <= LONG_EPISODE
        self.env_steps = own if self.is_own else env_steps or STEP_LIMIT
        self.has_warned = False

    def follow(self, env_steps: int) -> None:
        """Cut later, where training has seen longer episodes."""
        if env_steps > self.env_steps and not self.is_own:
            from kytolly.loop.late_evaluation import warn_of_longer

            warn_of_longer(self.name, self.env_steps, env_steps)
            self.env_steps = env_steps

    def warn_of_cut(self) -> None:
        """Say that an episode was cut, the first time."""
        if self.has_warned:
            return
        self.has_warned = True
        from kytolly.loop.late_evaluation import warn_of_cut

        warn_of_cut(self.name, self.env_steps, STEP_LIMIT)


def training_step_limit(state: TrainState) -> int:
    """Env steps of an episode of an evaluation during training, where nothing else limits them.

    A tenth of the interval between two evaluations, but at least 1,000, doubled until the episodes
    of training fit.
    """
    limit = max(MIN_STEP_LIMIT_IN_TRAINING, state.interval("evaluation", 20) // 10)
    while limit < min(state.longest_episode, STEP_LIMIT):
        limit *= 2
    return min(STEP_LIMIT, limit)
