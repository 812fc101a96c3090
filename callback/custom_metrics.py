"""The metrics that a user's callbacks add to a row, looked at before they are logged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat, SupportsIndex

from kytolly.callback.base import Callback, TrainState, warn
from kytolly.record.metrics_file import COUNTS, EVALUATION

TAKEN = (*COUNTS["env_steps"], *EVALUATION)  # columns that are no metrics of a row


class RowBefore(Callback):
    """Remembers the row of metrics before the user's callbacks have seen it."""

    def __init__(self):
        self.row: dict[str, Any] = {}
        self.added: dict[str, float] = {}  # the newest value of each metric that the user added

    def on_train_begin(self, state: TrainState) -> None:
        """The row of a resumed run may go on to grow."""
        self.row = dict(state.metrics)

    def on_log(self, state: TrainState) -> None:
        """Remember the row."""
        self.row = dict(state.metrics)


class RowAfter(Callback):
    """Keeps the numbers that were added to a row, and takes back everything else, with a warning.

    Args:
        before: Stands before the user's callbacks, as this one stands after them.
    """

    def __init__(self, before: RowBefore):
        self._before = before
        self._said = set()

    def on_log(self, state: TrainState) -> None:
        """Look at what was added."""
        self._look(state)

    def on_evaluation(self, state: TrainState) -> None:
        """Look at what was added."""
        self._look(state)

    def on_interval_end(self, state: TrainState) -> None:
        """The row is written: what is added now comes too late."""
        row: Any = state.metrics
        for name in [name for name in row if name not in self._before.row]:
            del row[name]
            self._say(name, "came in on_interval_end, when the row is written already", "is lost")

    def _look(self, state: TrainState) -> None:
        row: Any = state.metrics
        before = self._before.row
        for name, value in dict(row).items():
            if name in before and name not in self._before.added:
                if not is_same(value, before[name]):
                    row[name] = before[name]
                    self._say(name, "is a metric of the run", "keeps the run's value")
                continue
            number = number_of(value)
            if not isinstance(name, str) or not name.strip() or name in TAKEN:
                self._say(name, "is a column of the run, or no name", "is not logged")
            elif number is None:
                problem = f"is {type(value).__name__} {value!r:.60}, expected a number"
                self._say(name, " ".join(problem.split()), "is not logged")
            else:
                row[name] = before[name] = self._before.added[name] = number
                continue
            del row[name]
        for name, value in before.items():  # what was removed
            row.setdefault(name, value)

    def _say(self, name: object, problem: str, outcome: str) -> None:
        if name not in self._said:
            self._said.add(name)
            warn(
                f"a callback put {name!r} into state.metrics, which {problem}: it {outcome}. Put "
                "numbers under names of your own there, in on_log or on_evaluation."
            )


def number_of(value: object) -> float | None:
    """A value as a number: Python's, NumPy's, or a tensor or array of one element; else None."""
    if not isinstance(value, (SupportsFloat, SupportsIndex)):  # a text is neither
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def is_same(value: object, before: float) -> bool:
    """True where a metric is what it was; NaN is NaN."""
    number = number_of(value)
    return number == before or (number is not None and math.isnan(number) and math.isnan(before))


def between(user_callbacks: Sequence[Callback]) -> tuple[list[Callback], Mapping[str, float]]:
    """The user's callbacks, loggers last, and the metrics that the others will have added.

    A logger is a callback that `writes`.
    """
    before = RowBefore()
    watchers = [callback for callback in user_callbacks if callback.writes is None]
    loggers = [callback for callback in user_callbacks if callback.writes is not None]
    return [before, *watchers, RowAfter(before), *loggers], before.added
