"""The order of a run: train, log, evaluate, save, stop."""

from __future__ import annotations

import dataclasses
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
    """

    def __init__(
        self,
        agent: KytollyAgent,
        loop: Loop,
        make_evaluator: Callable[[int, int], Evaluator],
        callbacks: Sequence[Callback],
        state: TrainState,
    ):
        self.agent, self.loop, self.callbacks = agent, loop, callbacks
        self.make_evaluator = make_evaluator
        self._evaluator: Evaluator | None = None
        self.state, self.cfg = state, agent.cfg
        self.history: list[dict[str, float]] = []
        self.best_weights: list[np.ndarray] | None = None
        self.stopwatch = Stopwatch()
        self._began = time.perf_counter()
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
            self.stopwatch.compile_seconds = time.perf_counter() - self._began
            self._notify("on_train_begin")
            return self._train()
        finally:
            self._update_state()
            self._notify("on_train_end")

    def _train(self) -> str:
        total = self.cfg.total_env_steps
        log_every = self.cfg.interval("log_interval_env_steps", 50)
        evaluate_every = self.cfg.interval("evaluation_interval_env_steps", 20)
        while self.state.env_steps < total:
            done = self.state.env_steps
            next_evaluation = (done // evaluate_every + 1) * evaluate_every
            self._train_until(min((done // log_every + 1) * log_every, next_evaluation, total))
            self._notify("on_log")
            if self.stop_reason:
                break
            if self.state.env_steps >= min(next_evaluation, total):
                self._evaluate()
            if self.stop_reason:
                break
        if self._last_evaluation != self.state.env_steps and self.stop_reason != "non_finite":
            self._evaluate()
        return self.stop_reason or "total_env_steps"

    @property
    def stop_reason(self) -> str | None:
        """Why a callback wants the run to end, if one does."""
        return next((c.stop_reason for c in self.callbacks if c.stop_reason), None)

    def _train_until(self, env_steps: int) -> None:
        """Call the program, in pieces that depend on nothing but the run, and make one row."""
        began, before = time.perf_counter(), self.state
        sums: LoopMetrics | None = None
        done = int(self.agent.env_steps.numpy())
        while done < env_steps:
            metrics, done = self._call(done, env_steps)
            sums = metrics if sums is None else sums.plus(metrics)
        seconds = time.perf_counter() - began
        self._update_state()
        if sums is None:
            return
        row = averages(sums, self.agent)
        row["learning_rate"] = float(np.asarray(self.agent.policy.optimizer.learning_rate))
        row["env_steps_per_second"] = (self.state.env_steps - before.env_steps) / seconds
        row["updates_per_second"] = (self.state.updates - before.updates) / seconds
        self.state = dataclasses.replace(self.state, metrics=row)
        self.history.append({"env_steps": self.state.env_steps, **row})

    def _call(self, done: int, env_steps: int) -> tuple[LoopMetrics, int]:
        began = time.perf_counter()
        sums = self.loop.run(min(CALL_ENV_STEPS, env_steps - done))
        metrics = LoopMetrics(*(np.asarray(x) for x in sums))
        seconds, now = time.perf_counter() - began, int(self.agent.env_steps.numpy())
        if done >= self.cfg.first_update_env_steps:
            self.stopwatch.steady_seconds += seconds
            self.stopwatch.steady_env_steps += now - done
        return metrics, now

    def _evaluate(self) -> None:
        if self._evaluator is None:
            seed = stream_seed(self.cfg.seed, EVALUATION)
            self._evaluator = self.make_evaluator(self.cfg.evaluation_episodes, seed)
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
        self._last_evaluation = self.state.env_steps
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
            wall_seconds=time.perf_counter() - self._began,
        )

    def _notify(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self.state)
