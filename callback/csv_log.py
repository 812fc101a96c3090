"""Writes metrics.csv while a run trains."""

from __future__ import annotations

from typing import Any

from kytolly.callback.base import Callback, TrainState
from kytolly.record.metrics_file import COUNTS, EVALUATION, MetricsFile


class CSVLog(Callback):
    """Writes every row of metrics at once; a resumed run continues its file.

    An evaluation completes the row of its env step; where there is none, it makes one. The units
    are in docs/metrics.md.
    """

    def __init__(self):
        self._file: MetricsFile | None = None
        self._row: dict[str, Any] = {}
        self._earlier_seconds = 0.0

    def on_train_begin(self, state: TrainState) -> None:
        """Keep the rows up to here, if the run is resumed; later ones will be written again."""
        self._file, self._row = MetricsFile(state.run_dir), {}
        self._earlier_seconds = self._file.keep_rows(state.env_steps)

    def on_log(self, state: TrainState) -> None:
        """Write a row."""
        self._row = self._counts(state) | dict(state.metrics)
        if self._file is not None:
            self._file.append(self._row)

    def on_evaluation(self, state: TrainState) -> None:
        """Complete the row of this env step."""
        if state.evaluation is None or self._file is None:
            return
        summary = {f"evaluation_{k}": v for k, v in state.evaluation.summary().items()}
        metrics = {name: summary[name] for name in EVALUATION}
        if self._row.get("env_steps") == state.env_steps:
            self._row |= metrics
            self._file.replace_last(self._row)
        else:
            self._row = self._counts(state) | metrics
            self._file.append(self._row)

    def _counts(self, state: TrainState) -> dict[str, Any]:
        counts = {name: getattr(state, name) for name in COUNTS}
        return counts | {"wall_seconds": self._earlier_seconds + state.wall_seconds}
