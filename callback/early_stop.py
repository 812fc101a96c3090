"""Callbacks that end a run early."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kytolly.callback.base import Callback, JsonObject, TrainState

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig


class EarlyStop(Callback):
    """Stops when evaluations no longer improve.

    An improvement is measured against the best evaluation, so that many small ones add up. A
    resumed run continues to count. Evaluations before the first update do not count: nothing could
    have improved.

    Args:
        patience: Evaluations without improvement before the run ends.
        min_improvement: Smallest increase of the score that counts; an agent's is its mean return.
    """

    def __init__(self, patience: int, min_improvement: float = 0.0):
        if patience < 1 or not (0 <= min_improvement < math.inf):
            raise ValueError(
                f"EarlyStop got patience {patience} and min_improvement {min_improvement}, "
                "expected at least 1 evaluation and at least 0. Raise them."
            )
        self.patience, self.min_improvement = patience, min_improvement
        self._best = -math.inf
        self._without = self._limit = 0

    def on_train_begin(self, state: TrainState) -> None:
        """Start counting."""
        self.stop_reason = None
        self._best = state.best_score
        self._without = self._limit = 0

    def on_evaluation(self, state: TrainState) -> None:
        """Count evaluations since the last improvement."""
        if state.evaluation is None or state.updates == 0:
            return
        limit = state.evaluation.step_limit
        longer, self._limit = 0 < self._limit < limit, limit  # scores of longer episodes are others
        if longer or improves(state.evaluation.score, self._best, self.min_improvement):
            self._best = state.evaluation.score
            self._without = 0
            return
        self._without += 1
        self._compare()

    def get_state(self) -> JsonObject:
        """The best return, the evaluations since then, and the limit of their episodes."""
        return {"best": self._best, "without": self._without, "limit": self._limit}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Continue to count, with the patience that is set now."""
        self._best, self._without = saved["best"], saved["without"]
        self._limit = saved.get("limit", 0)  # an older run had none
        self._compare()

    def _compare(self) -> None:
        if self._without >= self.patience:
            self.stop_reason = "early_stop"


class RewardThreshold(Callback):
    """Stops when an evaluation's mean return reaches a threshold.

    Args:
        threshold: Mean return, in reward units.
    """

    def __init__(self, threshold: float):
        if math.isnan(threshold):
            raise ValueError("RewardThreshold got NaN, expected a return. Give a number.")
        self.threshold = threshold

    def on_train_begin(self, state: TrainState) -> None:
        """Forget an earlier run; one that is resumed may have reached the threshold already."""
        self.stop_reason = None
        self.on_evaluation(state)

    def on_evaluation(self, state: TrainState) -> None:
        """Compare the newest evaluation."""
        if state.evaluation is not None and state.evaluation.score >= self.threshold:
            self.stop_reason = "reward_threshold"


class TimeBudget(Callback):
    """Stops when the run has trained for some time; a resumed run has the full time again.

    Args:
        seconds: Wall-clock time since training began, compilation included.
    """

    def __init__(self, seconds: float):
        if not seconds > 0:
            raise ValueError(f"TimeBudget got {seconds} seconds, expected above 0. Raise it.")
        self.seconds = seconds
        self._began = 0.0

    def on_train_begin(self, state: TrainState) -> None:
        """Start the clock; the compilation that went before counts."""
        self.stop_reason = None
        self._began = state.wall_seconds_before

    def on_log(self, state: TrainState) -> None:
        """Look at the clock."""
        if state.wall_seconds - self._began >= self.seconds:
            self.stop_reason = "time"

    def on_evaluation(self, state: TrainState) -> None:
        """Look at the clock: an evaluation takes time too."""
        self.on_log(state)


def improves(value: float, best: float, min_improvement: float) -> bool:
    """True for a return better than the best; anything is better than nothing, NaN never is."""
    return value > best if math.isinf(best) else value - best > min_improvement


def end_callbacks(cfg: RunConfig | SupervisedConfig) -> list[Callback]:
    """The callbacks for the ends that a config asks for."""
    callbacks: list[Callback] = []
    threshold = getattr(cfg, "reward_threshold", None)
    if threshold is not None:
        callbacks.append(RewardThreshold(threshold))
    if cfg.early_stop_patience is not None:
        callbacks.append(EarlyStop(cfg.early_stop_patience, cfg.early_stop_min_improvement))
    if cfg.max_wall_seconds is not None:
        callbacks.append(TimeBudget(cfg.max_wall_seconds))
    return callbacks
