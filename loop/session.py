"""The order of a run: train up to so many units, log, evaluate, save, stop."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from kytolly.callback.base import Callback, JsonObject, Outcome, TrainState, notify
from kytolly.loop.learn import Learner, LoopMetrics
from kytolly.loop.limits import Clock, OutOfTime

if TYPE_CHECKING:
    from kytolly.loop.base import Loop, Report
    from kytolly.loop.recovery import Fault

MEAN = "evaluation_return_mean"
LUCK = 0.25  # of what evaluations lie apart: less is lost between seeds of the same weights
MAX_UNITS_PER_CALL = 2_000  # of the program: Ctrl-C waits for a call, and its cost is small


Result = TypeVar("Result")


class Request(Protocol):
    """Work on the device that a session waits for: its own loop does it, or one for many runs."""

    def answer(self) -> Any:
        """Do the work."""
        ...


Requests = Generator[Request, Any, Result]  # gets the answers, and returns a result


class Train(NamedTuple):
    """Train for at least so many units."""

    loop: Loop
    amount: int  # 0 only compiles
    deadline: float

    def answer(self) -> LoopMetrics:
        """The sums of what happened."""
        return self.loop.run(self.amount, self.deadline)


class Evaluate(NamedTuple):
    """Evaluate the present weights or, at the end of a run, the best ones."""

    report: Report
    state: TrainState | None  # where the run is; None: at its end
    deadline: float

    def answer(self) -> Outcome:
        """The evaluation."""
        if self.state is None:
            return self.report.evaluate_best(self.deadline)
        return self.report.evaluate(self.state, self.deadline)


def serve(requests: Requests[Result]) -> Result:
    """Do all that a generator asks for, one after the other; returns its result."""
    try:
        request = next(requests)
        while True:
            try:
                answer = request.answer()
            except BaseException as error:
                request = requests.throw(error)
            else:
                request = requests.send(answer)
    except StopIteration as end:
        return end.value


class Parts(NamedTuple):
    """All that a session drives, made for one config."""

    learner: Learner  # is trained
    loop: Loop  # trains it
    report: Report  # says how far the run is, and how good
    keeps_network: bool = False  # after a fault the same network goes on to learn


class TrainingSession:
    """Drives a loop to the end of a run and tells the callbacks what happens.

    The unit of a run is what its length and its intervals are counted in: env steps of an agent,
    updates of supervised learning.

    Args:
        parts: What it drives.
        callbacks: Called in this order at every hook.
        state: The run at its beginning.
        faults: After which the run went on, for result.json; one that is resumed adds to them.
        memory_use: Memory in MiB, now and at most so far, by the name of a metric.
    """

    def __init__(
        self,
        parts: Parts,
        callbacks: Sequence[Callback],
        state: TrainState,
        faults: list[Fault],
        memory_use: Callable[[], dict[str, float]] = dict,
    ):
        self.learner, self.loop, self.report, _ = parts
        self.callbacks, self.faults, self.memory_use = callbacks, faults, memory_use
        self.state = dataclasses.replace(state, session_state=self.session_state)
        self.clock = Clock(state.config.max_wall_seconds)
        self.history: list[dict[str, float]] = []  # one row of metrics for each log interval
        self.sums: LoopMetrics | None = None  # of the interval that has begun
        # Intervals depend on nothing but the units at which the last one ended, its evaluation
        # included: so a resumed run has the same.
        self.interval_end = 0
        self.last_evaluation = -1
        self.best_weights: list[np.ndarray] | None = None
        self.keeps_last = False  # the best weights, as those of the best evaluation had luck
        self.compile_seconds = 0.0
        self.steady_seconds = 0.0  # in the loop's program after warm-up
        self.steady_units = 0
        self.unwritten: dict[str, str] = {}  # why, by what could not be written
        self.restore_callbacks: Callable[[TrainState], None] | None = None  # of a continued run
        self._began = time.perf_counter()

    def run(self, raise_pending: Callable[[], None]) -> Requests[str]:
        """Train until something ends the run; returns what did, as in `result.json`.

        Ctrl-C waits until nothing is half done. Then the callbacks still see the end, so the run is
        saved, and KeyboardInterrupt goes on to the caller.

        Args:
            raise_pending: Raises what Ctrl-C asked for since.
        """
        self._began = time.perf_counter()
        self.clock.start()
        self._update_state()
        try:
            self._notify("on_compile_begin")
            yield Train(self.loop, 0, math.inf)
            self.compile_seconds += time.perf_counter() - self._began
            raise_pending()
            self._notify("on_train_begin")
            if self.restore_callbacks is not None:
                self.restore_callbacks(self.state)
            return (yield from self._train(raise_pending))
        finally:
            self._update_state()
            self._notify("on_train_end")

    def _train(self, raise_pending: Callable[[], None]) -> Requests[str]:
        total = self.state.total
        log_every = self.state.interval("log", 50)
        evaluate_every = self.state.interval("evaluation", 20)
        while self.interval_end < total and not self.stop_reason:
            done = self.interval_end
            next_evaluation = (done // evaluate_every + 1) * evaluate_every
            next_log = (done // log_every + 1) * log_every
            yield from self._train_until(min(next_log, next_evaluation, total), raise_pending)
            if self.stop_reason:
                break
            if self.state.progress >= min(next_evaluation, total):
                yield from self._evaluate()
            self.interval_end = self.state.progress
            if not self.stop_reason:
                self._notify("on_interval_end")
            raise_pending()
        if self.stop_reason != "non_finite":
            yield from self._evaluate()
        self.interval_end = self.state.progress
        return self.stop_reason or f"total_{self.state.unit}"

    @property
    def stop_reason(self) -> str | None:
        """The reason for which a callback wants to end the run, or `time`."""
        reasons = (callback.stop_reason for callback in self.callbacks if callback.stop_reason)
        return next(reasons, "time" if self.clock.time_is_up else None)

    def wall_seconds(self) -> float:
        """Time spent on the run until now."""
        return self.state.wall_seconds_before + time.perf_counter() - self._began

    def _train_until(self, end: int, raise_pending: Callable[[], None]) -> Requests[None]:
        """Call the program, in pieces that depend on nothing but the run, and log one row."""
        before, began = self.state, time.perf_counter()
        done = before.progress
        while done < end:
            call_began, previous = time.perf_counter(), done
            metrics = yield from self._call_loop(min(MAX_UNITS_PER_CALL, end - done))
            if metrics is None:
                break
            self.sums = metrics if self.sums is None else self.sums.plus(metrics)
            done = self.report.counts()[before.unit]
            if self.report.is_steady(previous):
                self.steady_seconds += time.perf_counter() - call_began
                self.steady_units += done - previous
            raise_pending()
        seconds = time.perf_counter() - began
        self._update_state()
        if self.sums is None:  # logged before the run was resumed
            return
        row = self.report.row(self.sums, before, self.state, seconds) | self.memory_use()
        self.sums = None
        length = row.get("episode_length", 0.0)  # NaN, which is never larger, where none ended
        longest = max(self.state.longest_episode, length)
        self.state = dataclasses.replace(self.state, metrics=row, longest_episode=longest)
        self._notify("on_log")
        self.history.append({before.unit: done, **row})

    def _call_loop(self, amount: int) -> Requests[LoopMetrics | None]:
        """Train for a piece of the run; None where there is no time left to."""
        if self.clock.time_is_up:
            return None
        try:
            metrics = yield Train(self.loop, amount, self.clock.call_deadline)
        except OutOfTime:
            self.clock.time_is_up = True
            return None
        self.compile_seconds += self.loop.compile_seconds
        self.clock.look()
        return metrics.on_host()

    def evaluate_best(self) -> Requests[Outcome]:
        """The evaluation of the run's best weights, which the network keeps."""
        last = self.learner.policy.network.get_weights()
        if self.best_weights is not None:
            self.learner.policy.set_weights(self.best_weights)
        play = Evaluate(self.report, None, self.clock.final_deadline)
        evaluation = yield play
        scores = [row[MEAN] for row in self.history if MEAN in row]
        lost = self.state.best_score - evaluation.score
        if len(scores) > 4 and lost > LUCK * (max(scores) - min(scores)):
            from kytolly.loop.lucky_choice import better_weights

            evaluation = yield from better_weights(self, play, evaluation, last)
        return evaluation

    def _evaluate(self) -> Requests[None]:
        if self.last_evaluation == self.state.progress:
            return
        evaluation = yield Evaluate(self.report, self.state, self.clock.evaluation_deadline)
        self.clock.time_is_up |= evaluation.cut
        if evaluation.cut and self.best_weights is not None:
            return  # it is no better than those that ended
        before, best = self.state.evaluation, self.state.best_score
        if before is not None and 0 < before.step_limit < evaluation.step_limit:
            best = -math.inf  # scores of longer episodes are others
        is_best = evaluation.score >= best
        if is_best:
            self.best_weights = self.learner.policy.network.get_weights()
            best = evaluation.score
        self.state = dataclasses.replace(
            self.state, evaluation=evaluation, is_best=is_best, best_score=best
        )
        self.last_evaluation = self.state.progress
        row = {f"evaluation_{k}": v for k, v in evaluation.summary().items() if k != "episodes"}
        self._notify("on_evaluation")
        if self.history:
            self.history[-1].update({**self.state.metrics, **row})

    def summary(self, evaluation: Outcome, stopped_by: str, seconds: float) -> JsonObject:
        """The contents of `result.json` for a run that has ended.

        Args:
            evaluation: The evaluation of the best weights.
            stopped_by: What ended training.
            seconds: Wall time since training began, or was resumed.
        """
        wall_seconds = self.state.wall_seconds_before + seconds
        state = dataclasses.replace(self.state, wall_seconds=wall_seconds)
        speed = self.steady_units / max(self.steady_seconds, 1e-9)
        restarts = self.loop.env_restarts
        return {
            **self.report.summary(state, speed, self.compile_seconds, evaluation),
            "stopped_by": stopped_by,
            "run_dir": str(self.state.run_dir),
            "memory": self.memory_use(),
            **({"evaluation_cut": True} if evaluation.cut else {}),
            **({"faults": self.faults} if self.faults else {}),
            **({} if restarts is None else {"env_restarts": restarts}),
        }

    def session_state(self) -> JsonObject:
        """All that a resumed session must know beside the tensors, as JSON can hold it."""
        self.loop.bring_up_to_date()
        state, sums = self.state, None
        if self.sums is not None:
            arrays = [np.asarray(part) for part in self.sums]
            sums = [[array.dtype.str, array.tolist()] for array in arrays]
        return {
            "interval_end": self.interval_end,
            "last_evaluation": self.last_evaluation,
            "wall_seconds": self.wall_seconds(),
            "steady": [self.compile_seconds, self.steady_seconds, self.steady_units],
            "best_return": state.best_score,
            "evaluation": dataclasses.asdict(state.evaluation) if state.evaluation else None,
            "metrics": dict(state.metrics),
            "sums": sums,
            "history": self.history,
            "faults": self.faults,
            "callbacks": [[type(c).__name__, c.get_state()] for c in self.callbacks],
        }

    def _update_state(self) -> None:
        self.learner.policy.publish()
        counts = self.report.counts()
        self.state = dataclasses.replace(self.state, **counts, wall_seconds=self.wall_seconds())

    def _notify(self, hook: str) -> None:
        notify(self.callbacks, hook, self.state, self.unwritten)
