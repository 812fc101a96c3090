"""The order of a run: train, log, evaluate, save, stop."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import EVALUATION, FINAL_EVALUATION, stream_seed
from kytolly.callback.base import Callback, Evaluation, TrainState, notify
from kytolly.loop.host_state import host_state
from kytolly.loop.interrupt import hold_signals
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.limits import training_step_limit
from kytolly.loop.log_row import log_row
from kytolly.loop.result import result_summary

CALL_ENV_STEPS = 2_000  # for one call of the program: Ctrl-C waits for it, and its cost is small


class TrainingSession:
    """Drives a loop to the end of a run and tells the callbacks what happens.

    Args:
        agent: The learner.
        loop: `DeviceLoop` or `HostLoop`, which trains it.
        make_evaluator: Makes what plays greedily, from a number of episodes, a seed, `xla` and
            `step_limit`.
        callbacks: Called in this order at every hook.
        state: The run at its beginning.
    """

    evaluation_kind, log_row, summary = Evaluation, log_row, result_summary

    def __init__(
        self,
        agent: KytollyAgent,
        loop: Any,
        make_evaluator: Callable[..., Any],
        callbacks: Sequence[Callback],
        state: TrainState,
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
        self.faults: list[dict[str, Any]] = []  # after which the run went on, for result.json
        self.memory: Callable[[], dict[str, float]] = dict  # now and at peak, in MiB
        self.first_steady = getattr(self.cfg, "first_update_env_steps", 0)
        self.unwritten: dict[str, str] = {}  # why, by what could not be written
        self.callback_states: list[Any] = []  # those of a run that is continued
        self._began = time.perf_counter()

    def run(self) -> str:
        """Train until something ends the run; returns what did, as in `result.json`.

        Ctrl-C waits until nothing is half done. Then the callbacks still see the end, so the run is
        saved, and KeyboardInterrupt goes on to the caller.
        """
        self._began = time.perf_counter()
        self._update_state()
        with hold_signals() as deliver_signals:
            try:
                self._notify("on_compile_begin")
                self.loop.run(0)
                self.compile_seconds += time.perf_counter() - self._began
                deliver_signals()
                self._notify("on_train_begin")
                if self.callback_states:
                    from kytolly.loop.saved_session import set_callback_states

                    set_callback_states(self)
                return self._train(deliver_signals)
            finally:
                self._update_state()
                self._notify("on_train_end")

    def _train(self, deliver_signals: Callable[[], None]) -> str:
        total, log_every = self.state.total, self.state.interval("log", 50)
        evaluate_every = self.state.interval("evaluation", 20)
        while self.interval_end < total and not self.stop_reason:
            done = self.interval_end
            next_evaluation = (done // evaluate_every + 1) * evaluate_every
            next_log = (done // log_every + 1) * log_every
            self._train_until(min(next_log, next_evaluation, total), deliver_signals)
            if self.stop_reason:
                break
            if self.state.progress >= min(next_evaluation, total):
                self._evaluate()
            self.interval_end = self.state.progress
            if not self.stop_reason:
                self._notify("on_interval_end")
            deliver_signals()
        if self.stop_reason != "non_finite":
            self._evaluate()
        self.interval_end = self.state.progress
        return self.stop_reason or f"total_{self.state.unit}"

    @property
    def stop_reason(self) -> str | None:
        """What a callback wants to end the run for."""
        return next((c.stop_reason for c in self.callbacks if c.stop_reason), None)

    @functools.cached_property
    def _evaluator(self) -> Any:
        seed, limit = stream_seed(self.cfg.seed, EVALUATION), training_step_limit(self.state)
        return self.make_evaluator(
            self.cfg.evaluation_episodes, seed, xla=self.loop.xla, step_limit=limit
        )

    def wall_seconds(self) -> float:
        """Time spent on the run until now."""
        return self.state.wall_seconds_before + time.perf_counter() - self._began

    def run_loop(self, env_steps: int) -> LoopMetrics | None:
        """Train for at least `env_steps` env steps; None where there is no time left to."""
        return self.loop.run(env_steps)

    def _train_until(self, end: int, deliver_signals: Callable[[], None]) -> None:
        """Call the program, in pieces that depend on nothing but the run, and log one row."""
        before, began = self.state, time.perf_counter()
        done, moment = before.progress, began
        while done < end:
            metrics = self.run_loop(min(CALL_ENV_STEPS, end - done))
            if metrics is None:
                break
            metrics = LoopMetrics(*map(np.asarray, metrics))
            self.sums = metrics if self.sums is None else self.sums.plus(metrics)
            last, moment = moment, time.perf_counter()
            previous, done = done, int(getattr(self.agent, before.unit))
            if previous >= self.first_steady:
                self.steady_seconds += moment - last
                self.steady_env_steps += done - previous
            deliver_signals()
        seconds = time.perf_counter() - began
        self._update_state()
        if self.sums is None:  # logged before the run was resumed
            return
        row, self.sums = self.log_row(before, seconds) | self.memory(), None
        self.state = dataclasses.replace(self.state, metrics=row)
        self._notify("on_log")
        self.history.append({before.unit: done, **row})

    def play(self, evaluator: Any, number: int = 0) -> Evaluation:
        """The evaluation of that number."""
        return evaluator.evaluate(number)

    def evaluate_best(self) -> Evaluation:
        """Greedy episodes with the best weights of the run, which the agent keeps.

        Their seed keeps them apart from those that picked the weights.
        """
        if self.best_weights is not None:
            self.agent.policy.set_weights(self.best_weights)
        episodes, seed = self.cfg.final_evaluation_episodes, self.cfg.seed
        seed = stream_seed(seed, FINAL_EVALUATION)
        return self.play(self.make_evaluator(episodes, seed, xla=self.loop.xla))

    def _evaluate(self) -> None:
        if self.last_evaluation == self.state.progress:
            return
        evaluation = self.play(self._evaluator, self.state.progress)
        if evaluation.cut and self.best_weights is not None:
            return  # it is no better than those that ended
        is_best = evaluation.score >= self.state.best_score
        if is_best:
            self.best_weights = self.agent.policy.network.get_weights()
        best = evaluation.score if is_best else self.state.best_score
        self.state = dataclasses.replace(
            self.state, evaluation=evaluation, is_best=is_best, best_score=best
        )
        self.last_evaluation = self.state.progress
        row = {f"evaluation_{k}": v for k, v in evaluation.summary().items() if k != "episodes"}
        self._notify("on_evaluation")
        if self.history:
            self.history[-1].update({**self.state.metrics, **row})

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
        notify(self.callbacks, hook, self.state, self.unwritten)
