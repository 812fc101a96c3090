"""A session that ends, with its evaluations, when max_wall_seconds have passed."""

from __future__ import annotations

import time
from typing import Any

from kytolly.callback.base import Evaluation
from kytolly.loop.deadline import OutOfTime
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.session import TrainingSession

LATE_SECONDS = 1.0  # after max_wall_seconds: then a rollout is left unfinished
END_SECONDS = 5.0  # for the evaluations after max_wall_seconds, or a tenth of it if that is more


class TimedSession(TrainingSession):
    """Training as ever; between two calls, and within each, it looks at the clock."""

    time_is_up = False

    def run(self) -> str:
        """As every session; `time` may end it."""
        seconds = self.cfg.max_wall_seconds or 0.0
        self.deadline = time.perf_counter() + seconds
        self.grace = max(END_SECONDS, seconds / 10)
        self.evaluation_deadline = self.deadline + self.grace / 2
        return super().run()

    @property
    def stop_reason(self) -> str | None:
        """What a callback wants to end the run for, or `time`."""
        return super().stop_reason or ("time" if self.time_is_up else None)

    def run_loop(self, env_steps: int) -> LoopMetrics | None:
        """Train for at least `env_steps` env steps; None where there is no time left to."""
        if self.time_is_up:
            return None
        try:
            metrics = self.loop.run(env_steps, self.deadline + LATE_SECONDS)
        except OutOfTime:
            self.time_is_up = True
            return None
        self.time_is_up = time.perf_counter() > self.deadline
        return metrics

    def play(self, evaluator: Any, number: int = 0) -> Evaluation:
        """The evaluation of that number, cut if it takes too long."""
        evaluation = evaluator.evaluate(number, self.evaluation_deadline)
        self.time_is_up |= evaluation.cut
        return evaluation

    def evaluate_best(self) -> Evaluation:
        """As every session, with what is left of the time after the end."""
        self.evaluation_deadline = self.deadline + self.grace
        return super().evaluate_best()
