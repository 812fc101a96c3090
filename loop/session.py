"""The order of a run: train, log, evaluate, save, stop."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import EVALUATION, stream_seed
from kytolly.callback.base import Callback, TrainState
from kytolly.loop.metrics import LoopMetrics, averages

if TYPE_CHECKING:
    from kytolly.loop.protocols import Evaluator, Loop

CALL_ENV_STEPS = 2_000  # for one call of the program: Ctrl-C waits for it, and its cost is small


class TrainingSession:
    """Drives a loop to the end of a run and tells the callbacks what happens.

    Args:
        agent: The learner.
        loop: Trains it.
        make_evaluator: Makes what judges the network from a number of episodes, a seed and `xla`.
        callbacks: Called in this order at every hook.
        state: The run at its beginning (or where it is resumed).

    Attributes:
        history: One row of metrics for each log interval.
        steady_seconds, steady_env_steps: Time and env steps in the loop's program after warm-up.
    """

    def __init__(
        self,
        agent: KytollyAgent,
        loop: Loop,
        make_evaluator: Callable[..., Evaluator],
        callbacks: Sequence[Callback],
        state: TrainState,
    ):
        self.agent, self.loop, self.callbacks = agent, loop, callbacks
        self.make_evaluator, self.state, self.cfg = make_evaluator, state, agent.cfg
        self.history: list[dict[str, float]] = []
        self.compile_seconds, self.steady_seconds, self.steady_env_steps = 0.0, 0.0, 0
        self._evaluator: Evaluator | None = None
        self._last_evaluation = -1

    def run(self) -> str:
        """Train until something ends the run; returns what did, as in `result.json`.

        On Ctrl-C the callbacks still see the end, so the run is saved, and KeyboardInterrupt
        goes on to the caller.
        """
        self._began = time.perf_counter()
        self._update_state()
        try:
            self.loop.run(0)
            self.compile_seconds = time.perf_counter() - self._began
            self._notify("on_train_begin")
            return self._train()
        finally:
            self._update_state()
            self._notify("on_train_end")

    def _train(self) -> str:
        total = self.cfg.total_env_steps
        log_every = self.cfg.interval("log_interval_env_steps", 50)
        evaluate_every = self.cfg.interval("evaluation_interval_env_steps", 20)
        while self.state.env_steps < total and not self._stop_reason:
            done = self.state.env_steps
            next_evaluation = min((done // evaluate_every + 1) * evaluate_every, total)
            self._train_until(min((done // log_every + 1) * log_every, next_evaluation))
            self._notify("on_log")
            if self.state.env_steps >= next_evaluation and not self._stop_reason:
                self._evaluate()
        if self._last_evaluation != self.state.env_steps and self._stop_reason != "non_finite":
            self._evaluate()
        return self._stop_reason or "total_env_steps"

    @property
    def _stop_reason(self) -> str | None:
        return next((c.stop_reason for c in self.callbacks if c.stop_reason), None)

    def _train_until(self, env_steps: int) -> None:
        """Call the program, in pieces that depend on nothing but the run, and make one row."""
        before, moment, calls = self.state, time.perf_counter(), []
        began, done = moment, before.env_steps
        while done < env_steps:
            sums = self.loop.run(min(CALL_ENV_STEPS, env_steps - done))
            calls.append(LoopMetrics(*map(np.asarray, sums)))
            last, moment = moment, time.perf_counter()
            previous, done = done, int(self.agent.env_steps)
            if previous >= self.cfg.first_update_env_steps:
                self.steady_seconds += moment - last
                self.steady_env_steps += done - previous
        self._update_state()
        row = averages(functools.reduce(LoopMetrics.plus, calls), self.agent)
        row["learning_rate"] = float(self.agent.policy.optimizer.learning_rate)
        row["env_steps_per_second"] = (done - before.env_steps) / (moment - began)
        row["updates_per_second"] = (self.state.updates - before.updates) / (moment - began)
        self.state = dataclasses.replace(self.state, metrics=row)
        self.history.append({"env_steps": done, **row})

    def _evaluate(self) -> None:
        if self._evaluator is None:
            cfg = self.cfg
            self._evaluator = self.make_evaluator(
                cfg.evaluation_episodes, stream_seed(cfg.seed, EVALUATION), xla=self.loop.xla
            )
        evaluation, best = self._evaluator.evaluate(), self.state.best_return
        self.state = dataclasses.replace(
            self.state,
            evaluation=evaluation,
            is_best=evaluation.return_mean >= best,
            best_return=max(best, evaluation.return_mean),
        )
        self._last_evaluation = self.state.env_steps
        row = {f"evaluation_{k}": v for k, v in evaluation.summary().items() if k != "episodes"}
        if self.history:
            self.history[-1].update(row)
        self._notify("on_evaluation")

    def _update_state(self) -> None:
        self.agent.policy.publish()
        self.state = dataclasses.replace(
            self.state,
            env_steps=int(self.agent.env_steps),
            updates=int(self.agent.policy.updates),
            episodes=int(self.agent.episodes),
            wall_seconds=time.perf_counter() - self._began,
        )

    def _notify(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self.state)
