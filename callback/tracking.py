"""Loggers of experiment trackers: a row's numbers, and the files of a run."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

from kytolly.callback.base import Callback, TrainState
from kytolly.callback.tensorboard import run_settings

FILES = ("config.yaml", "metrics.csv", "result.json", "learning_curve.png", "best.keras")


class Tracking(Callback):
    """Logs a run to a tracker: settings, every row, evaluations, and at the end the run's files.

    A resumed run goes on in the tracker's run, whose id a checkpoint keeps; points after that
    checkpoint are logged once more. A subclass says how to open, log and close a run.
    """

    def __init__(self):
        self._run: Any = None
        self._id: str | None = None
        self._row: dict[str, float] = {}  # the newest one that is logged
        self._error: BaseException | None = None  # which is handled where training begins

    def on_train_begin(self, state: TrainState) -> None:
        """Open the run, unless it is resumed: then its id is not known yet."""
        self._row, self._id, self._error = dict(state.metrics), None, sys.exc_info()[1]
        if state.progress == 0:
            self._open_once(state)

    def on_log(self, state: TrainState) -> None:
        """Log the newest row."""
        self._row = dict(state.metrics)
        self._open_once(state)
        counts = {"updates": state.updates, "wall_seconds": state.wall_seconds}
        self.log(finite({**self._row, **counts}), state)

    def on_evaluation(self, state: TrainState) -> None:
        """Log the evaluation, and what was added to the row since it was logged."""
        if state.evaluation is None:
            return
        self._open_once(state)
        added = {name: v for name, v in state.metrics.items() if name not in self._row}
        self._row |= added
        summary = {f"evaluation_{k}": v for k, v in state.evaluation.summary().items()}
        self.log(finite({**added, **summary, "best_score": state.best_score}), state)

    def on_train_end(self, state: TrainState) -> None:
        """Close the run, if an error or an interruption ends training."""
        if sys.exc_info()[1] is not self._error and self._run is not None:
            self.close(failed=True)
            self._run = None

    def on_run_end(self, state: TrainState) -> None:
        """Log the result and the files, and close the run."""
        self._open_once(state)
        result = json.loads((state.run_dir / "result.json").read_text(encoding="utf-8"))
        numbers = {f"final_{name}": value for name, value in result["evaluation"].items()}
        numbers |= {k: result[k] for k in ("wall_seconds", "compile_seconds") if k in result}
        paths = [state.run_dir / name for name in FILES]
        self.log_result(finite(numbers), result["stopped_by"], [p for p in paths if p.is_file()])
        self.close(failed=False)
        self._run = None

    def get_state(self) -> dict[str, Any]:
        """The id of the tracker's run."""
        return {"id": self._id}

    def set_state(self, state: TrainState, saved: dict[str, Any]) -> None:
        """Go on in the tracker's run."""
        self._id = saved["id"]

    def open(self, state: TrainState, settings: dict[str, Any], run_id: str | None) -> Any:
        """The tracker's run, new or that of an id; its own id goes into `self._id`."""
        raise NotImplementedError

    def log(self, metrics: dict[str, float], state: TrainState) -> None:
        """Log numbers at the run's progress."""
        raise NotImplementedError

    def log_result(self, numbers: dict[str, float], stopped_by: str, paths: list[Path]) -> None:
        """Log the final numbers and files."""
        raise NotImplementedError

    def close(self, failed: bool) -> None:
        """Close the tracker's run."""
        raise NotImplementedError

    def _open_once(self, state: TrainState) -> None:
        if self._run is None:
            self._run = self.open(state, run_settings(state), self._id)


def finite(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics that are finite numbers."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def tracker(package: str) -> Any:
    """An optional package; ValueError where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"{package} cannot be imported ({error}), expected it for this logger. Install it: "
            'pip install "kytolly[loggers]".'
        ) from None
