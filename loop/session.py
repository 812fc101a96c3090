"""The order of a run: train, log, evaluate, save, stop."""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kytolly.agent.kytolly import KytollyAgent
from kytolly.callback.base import Callback, TrainState
from kytolly.loop.host_state import host_state, set_callback_states, set_host_state
from kytolly.loop.interrupt import hold_signals
from kytolly.loop.metrics import LoopMetrics, averages

if TYPE_CHECKING:
    from kytolly.loop.protocols import Evaluator, Loop

CALL_ENV_STEPS = 2_000  # for one call of the program: Ctrl-C waits for it, and its cost is small


@dataclasses.dataclass
class Stopwatch:
    """Where a run's time went, in seconds; speeds leave compilation and warm-up out."""

    compile_seconds: float = 0.0
    steady_seconds: float = 0.0
    steady_env_steps: int = 0

    @property
    def env_steps_per_second(self) -> float:
        """Steady speed of the training loop; 0 before there is one."""
        return self.steady_env_steps / self.steady_seconds if self.steady_seconds else 0.0


class TrainingSession:
    """Drives a loop to the end of a run and tells the callbacks what happens.

    Args:
        agent: The learner.
        loop: Trains it.
        make_evaluator: Makes what judges the network from a number of episodes and a seed; called
            once the loop is compiled.
        callbacks: Called in this order at every hook.
        state: The run at its beginning (or where it is resumed).
        saved: The host state with which it is resumed.

    Attributes:
        interval_end: Env steps at which the last log interval ended, its evaluation included. The
            next one depends on nothing but this, so a resumed run has the same intervals.
        sums: Metrics of the interval that has begun.
        unwritten: Why files could not be written, by what they are.
    """

    def __init__(
        self,
        agent: KytollyAgent,
        loop: Loop,
        make_evaluator: Callable[[int, int], Evaluator],
        callbacks: Sequence[Callback],
        state: TrainState,
        saved: dict[str, Any] | None = None,
    ):
        self.agent, self.loop, self.callbacks = agent, loop, callbacks
        self.make_evaluator = make_evaluator
        self._evaluator: Evaluator | None = None
        self.cfg = agent.cfg
        self.state = dataclasses.replace(state, host_state=lambda: host_state(self))
        self.history: list[dict[str, float]] = []
        self.best_weights: list[np.ndarray] | None = None
        self.stopwatch = Stopwatch()
        self.unwritten: dict[str, str] = {}
        self.interval_end, self.last_evaluation = 0, -1
        self.sums: LoopMetrics | None = None
        self._began = time.perf_counter()
        self._saved = saved
        if saved:
            set_host_state(self, saved)

    def run(self) -> str:
        """Train until something ends the run; returns what did, as in `result.json`.

        Ctrl-C waits until nothing is half done. Then the callbacks still see the end, so the run is
        saved, and KeyboardInterrupt goes on to the caller.
        """
        self._began = time.perf_counter()
        self._update_state()
        with hold_signals() as deliver_signals:
            try:
                self.loop.run(0)
                self.stopwatch.compile_seconds += time.perf_counter() - self._began
                deliver_signals()
                self._notify("on_train_begin")
                if self._saved:
                    set_callback_states(self, self._saved)
                return self._train(deliver_signals)
            finally:
                self._update_state()
                self._notify("on_train_end")

    def _train(self, deliver_signals: Callable[[], None]) -> str:
        total = self.cfg.total_env_steps
        log_every = self.cfg.interval("log_interval_env_steps", 50)
        evaluate_every = self.cfg.interval("evaluation_interval_env_steps", 20)
        while self.interval_end < total and not self.stop_reason:
            done = self.interval_end
            next_evaluation = (done // evaluate_every + 1) * evaluate_every
            next_log = (done // log_every + 1) * log_every
            self._train_until(min(next_log, next_evaluation, total), deliver_signals)
            if self.stop_reason:
                break
            if self.state.env_steps >= min(next_evaluation, total):
                self._evaluate()
            self.interval_end = self.state.env_steps
            if not self.stop_reason:
                self._notify("on_interval_end")
            deliver_signals()
        if self.stop_reason != "non_finite":
            self._evaluate()
        self.interval_end = self.state.env_steps
        return self.stop_reason or "total_env_steps"

    @property
    def stop_reason(self) -> str | None:
        """Why a callback wants the run to end, if one does."""
        return next((c.stop_reason for c in self.callbacks if c.stop_reason), None)

    def wall_seconds(self) -> float:
        """Time spent on the run until now."""
        return self.state.wall_seconds_before + time.perf_counter() - self._began

    def evaluator_state(self) -> dict[str, Any] | None:
        """Where the random stream of the evaluations is; None before the first."""
        if self._evaluator is None:
            return self._saved["evaluator"] if self._saved else None
        return self._evaluator.get_state()

    def _train_until(self, env_steps: int, deliver_signals: Callable[[], None]) -> None:
        """Call the program, in pieces that depend on nothing but the run, and log one row."""
        began, before = time.perf_counter(), self.state
        done = int(self.agent.env_steps.numpy())
        while done < env_steps:
            metrics, done = self._call(done, env_steps)
            self.sums = metrics if self.sums is None else self.sums.plus(metrics)
            deliver_signals()
        seconds = time.perf_counter() - began
        self._update_state()
        if self.sums is None:  # logged before the run was resumed
            return
        row, self.sums = averages(self.sums, self.agent), None
        row["learning_rate"] = float(np.asarray(self.agent.policy.optimizer.learning_rate))
        row["env_steps_per_second"] = (self.state.env_steps - before.env_steps) / seconds
        row["updates_per_second"] = (self.state.updates - before.updates) / seconds
        self.state = dataclasses.replace(self.state, metrics=row)
        self.history.append({"env_steps": self.state.env_steps, **row})
        self._notify("on_log")

    def _call(self, done: int, env_steps: int) -> tuple[LoopMetrics, int]:
        began = time.perf_counter()
        sums = self.loop.run(min(CALL_ENV_STEPS, env_steps - done))
        metrics = LoopMetrics(*(np.asarray(x) for x in sums))
        seconds, now = time.perf_counter() - began, int(self.agent.env_steps.numpy())
        if done >= self.cfg.warmup_env_steps:
            self.stopwatch.steady_seconds += seconds
            self.stopwatch.steady_env_steps += now - done
        return metrics, now

    def _evaluate(self) -> None:
        if self.last_evaluation == self.state.env_steps:
            return
        if self._evaluator is None:
            saved, episodes = self.evaluator_state(), self.cfg.evaluation_episodes
            self._evaluator = self.make_evaluator(episodes, self.cfg.seed)
            if saved:
                self._evaluator.set_state(saved)
        evaluation = self._evaluator.evaluate()
        is_best = evaluation.return_mean >= self.state.best_return
        if is_best:
            self.best_weights = self.agent.policy.network.get_weights()
        self.state = dataclasses.replace(
            self.state,
            evaluation=evaluation,
            is_best=is_best,
            best_return=max(self.state.best_return, evaluation.return_mean),
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
            env_steps=int(self.agent.env_steps.numpy()),
            updates=int(self.agent.policy.updates.numpy()),
            episodes=int(self.agent.episodes.numpy()),
            wall_seconds=self.wall_seconds(),
        )

    def _notify(self, hook: str) -> None:
        for callback in self.callbacks:
            if callback.writes is None or hook == "on_train_begin":
                getattr(callback, hook)(self.state)
            else:
                self.write_or_note(
                    callback.writes, functools.partial(getattr(callback, hook), self.state)
                )

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
