"""The order of a run: train, log, evaluate, save, stop."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import EVALUATION, stream_seed
from kytolly.callback.base import Callback, TrainState
from kytolly.loop.host_state import host_state
from kytolly.loop.interrupt import hold_signals
from kytolly.loop.learn import LoopMetrics, averages
from kytolly.loop.limits import OutOfTime

LATE_SECONDS = 1.0  # after max_wall_seconds: then a rollout is left unfinished
END_SECONDS = 5.0  # for the evaluations after max_wall_seconds, or a tenth of it if that is more
CALL_ENV_STEPS = 2_000  # for one call of the program: Ctrl-C waits for it, and its cost is small


class TrainingSession:
    """Drives a loop to the end of a run and tells the callbacks what happens.

    Args:
        agent: The learner.
        loop: `DeviceLoop` or `HostLoop`, which trains it.
        make_evaluator: Makes what plays greedily, from a number of episodes, a seed and `xla`.
        callbacks: Called in this order at every hook.
        state: The run at its beginning.
        saved: What `loop.host_state` gave, where the run is resumed.
    """

    def __init__(
        self,
        agent: KytollyAgent,
        loop: Any,
        make_evaluator: Callable[..., Any],
        callbacks: Sequence[Callback],
        state: TrainState,
        saved: dict[str, Any] | None = None,
    ):
        self.agent, self.loop, self.callbacks = agent, loop, callbacks
        self.make_evaluator, self.cfg = make_evaluator, agent.cfg
        self.state = dataclasses.replace(state, host_state=lambda: host_state(self))
        self.history: list[dict[str, float]] = []  # one row of metrics for each log interval
        self.sums: LoopMetrics | None = None  # of the interval that has begun
        # Intervals depend on nothing but the env steps at which the last one ended, its evaluation
        # included: so a resumed run has the same.
        self.interval_end, self.last_evaluation = 0, -1
        self.best_weights: list[np.ndarray] | None = None
        self.compile_seconds = 0.0
        self.steady_seconds, self.steady_env_steps = 0.0, 0  # in the loop's program after warm-up
        self.unwritten: dict[str, str] = {}  # why, by what could not be written
        self.deadline = math.inf  # `time.perf_counter()` at which max_wall_seconds have passed
        self.grace = max(END_SECONDS, (self.cfg.max_wall_seconds or 0) / 10)  # to end after it
        self._time_is_up = False
        self._began, self._saved = time.perf_counter(), saved
        if saved:
            from kytolly.loop.saved_session import set_host_state

            set_host_state(self, saved)

    def run(self) -> str:
        """Train until something ends the run; returns what did, as in `result.json`.

        Ctrl-C waits until nothing is half done. Then the callbacks still see the end, so the run is
        saved, and KeyboardInterrupt goes on to the caller.
        """
        self._began = time.perf_counter()
        if self.cfg.max_wall_seconds is not None:
            self.deadline = self._began + self.cfg.max_wall_seconds
        self._update_state()
        with hold_signals() as deliver_signals:
            try:
                self.loop.run(0)
                self.compile_seconds += time.perf_counter() - self._began
                deliver_signals()
                self._notify("on_train_begin")
                if self._saved:
                    from kytolly.loop.saved_session import set_callback_states

                    set_callback_states(self, self._saved)
                return self._train(deliver_signals)
            finally:
                self._update_state()
                self._notify("on_train_end")

    def _train(self, deliver_signals: Callable[[], None]) -> str:
        total = self.cfg.total_env_steps
        log_every = self.cfg.interval("log_interval_env_steps", 50)
        evaluate_every = self.cfg.interval("evaluation_interval_env_steps", 20)
        while self.interval_end < total and not self._stop_reason:
            done = self.interval_end
            next_evaluation = (done // evaluate_every + 1) * evaluate_every
            next_log = (done // log_every + 1) * log_every
            self._train_until(min(next_log, next_evaluation, total), deliver_signals)
            if self._stop_reason:
                break
            if self.state.env_steps >= min(next_evaluation, total):
                self._evaluate()
            self.interval_end = self.state.env_steps
            if not self._stop_reason:
                self._notify("on_interval_end")
            deliver_signals()
        if self._stop_reason != "non_finite":
            self._evaluate()
        self.interval_end = self.state.env_steps
        return self._stop_reason or "total_env_steps"

    @property
    def _stop_reason(self) -> str | None:
        reasons = (c.stop_reason for c in self.callbacks if c.stop_reason)
        return next(reasons, "time" if self._time_is_up else None)

    @functools.cached_property
    def _evaluator(self) -> Any:
        seed = stream_seed(self.cfg.seed, EVALUATION)
        return self.make_evaluator(self.cfg.evaluation_episodes, seed, xla=self.loop.xla)

    def wall_seconds(self) -> float:
        """Time spent on the run until now."""
        return self.state.wall_seconds_before + time.perf_counter() - self._began

    def _train_until(self, env_steps: int, deliver_signals: Callable[[], None]) -> None:
        """Call the program, in pieces that depend on nothing but the run, and log one row."""
        before, began = self.state, time.perf_counter()
        done, moment = before.env_steps, began
        while done < env_steps and not self._time_is_up:
            try:
                call = min(CALL_ENV_STEPS, env_steps - done)
                metrics = self.loop.run(call, self.deadline + LATE_SECONDS)
            except OutOfTime:
                self._time_is_up, moment = True, time.perf_counter()
                break
            metrics = LoopMetrics(*map(np.asarray, metrics))
            self.sums = metrics if self.sums is None else self.sums.plus(metrics)
            last, moment = moment, time.perf_counter()
            previous, done = done, int(self.agent.env_steps)
            if previous >= self.cfg.first_update_env_steps:
                self.steady_seconds += moment - last
                self.steady_env_steps += done - previous
            self._time_is_up = moment > self.deadline
            deliver_signals()
        self._update_state()
        if self.sums is None:  # logged before the run was resumed
            return
        row, self.sums, seconds = averages(self.sums, self.agent), None, moment - began
        if self.loop.env_restarts is not None:
            row["env_restarts"] = self.loop.env_restarts
        row["learning_rate"] = float(self.agent.policy.optimizer.learning_rate)
        row["env_steps_per_second"] = (done - before.env_steps) / seconds
        row["updates_per_second"] = (self.state.updates - before.updates) / seconds
        self.state = dataclasses.replace(self.state, metrics=row)
        self.history.append({"env_steps": done, **row})
        self._notify("on_log")

    def _evaluate(self) -> None:
        if self.last_evaluation == self.state.env_steps:
            return
        limit = self.deadline + self.grace / 2
        evaluation = self._evaluator.evaluate(self.state.env_steps, limit)
        self._time_is_up |= evaluation.cut
        if evaluation.cut and self.best_weights is not None:
            return  # it is no better than those that ended
        is_best = evaluation.return_mean >= self.state.best_return
        if is_best:
            self.best_weights = self.agent.policy.network.get_weights()
        best = evaluation.return_mean if is_best else self.state.best_return
        self.state = dataclasses.replace(
            self.state, evaluation=evaluation, is_best=is_best, best_return=best
        )
        self.last_evaluation = self.state.env_steps
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
            wall_seconds=self.wall_seconds(),
        )

    def _notify(self, hook: str) -> None:
        for callback in self.callbacks:
            call = functools.partial(getattr(callback, hook), self.state)
            if callback.writes is None or hook == "on_train_begin":
                call()
            else:
                self.write_or_note(callback.writes, call)

    def write_or_note(self, what: str, write: Callable[[], Any]) -> None:
        """Write something; where that fails, warn once for each kind and go on."""
        try:
            write()
        except Exception as error:
            if what in self.unwritten:
                return
            self.unwritten[what] = " ".join(str(getattr(error, "strerror", "") or error).split())
            warnings.warn(
                f"{self.state.run_dir}: {what} cannot be written ({self.unwritten[what]:.200}). "
                "Training goes on; what was written before stays.",
                stacklevel=2,
            )
