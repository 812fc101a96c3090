"""The limits of an evaluation's episodes, and of the time of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from kytolly.callback.base import TrainState

STEP_LIMIT = 27_000  # env steps, as in Atari; the episode is cut there
MIN_STEP_LIMIT_IN_TRAINING = 1_000  # env steps
# Of what evaluations lie apart, and of the best: less is lost between seeds of the same weights.
LUCK, LOSS = 0.25, 0.05
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
        name: Name of the environment.
        env_steps: Where an episode is cut; None takes `STEP_LIMIT`.
    """

    def __init__(self, name: str, env_steps: int | None = None):
        self.name, self.env_steps = name, env_steps or STEP_LIMIT
        self._has_warned = False

    def warn_of_cut(self) -> None:
        """Say that an episode was cut, the first time."""
        if self._has_warned:
            return
        self._has_warned = True
        from kytolly.loop.late_evaluation import warn_of_cut

        warn_of_cut(self.name, self.env_steps, STEP_LIMIT)


def training_step_limit(state: TrainState) -> int:
    """Env steps of an episode of an evaluation during training, where nothing else limits them.

    A tenth of the interval between two evaluations, but at least 1,000, which many episodes need.
    """
    tenth = state.interval("evaluation", 20) // 10
    return min(STEP_LIMIT, max(MIN_STEP_LIMIT_IN_TRAINING, tenth))


def was_luck(state: TrainState, final: Any, scores: Sequence[float]) -> bool:
    """True if the best weights return much less than in that of the evaluations that chose them."""
    if len(scores) < 3 or final.cut or final.length_mean >= training_step_limit(state):
        return False
    best, spread = max(scores), max(scores) - min(scores)
    return best - final.return_mean > max(LUCK * spread, LOSS * abs(best))
