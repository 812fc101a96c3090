"""Writes metrics.csv while a run trains."""

from __future__ import annotations

from typing import Any

from kytolly.callback.base import Callback, JsonObject, TrainState
from kytolly.record.files import sync
from kytolly.record.metrics_file import COUNTS, NAME, MetricsFile


class CSVLog(Callback):
    """Writes every row of metrics at once; a resumed run continues its file.

    An evaluation completes the row of its moment; where there is none, it makes one. A row that
    could not be written is written with the next one. The units are in docs/metrics.md.
    """

    writes = NAME

    def __init__(self):
        self._file: MetricsFile | None = None
        self._row: dict[str, Any] = {}

    def on_train_begin(self, state: TrainState) -> None:
        """Begin the file; of a resumed run, keep the rows up to here."""
        self._file = MetricsFile(state.run_dir, state.unit)
        self._row = {}
        self._file.keep_rows(state.progress)

    def on_log(self, state: TrainState) -> None:
        """Write a row."""
        self._row = counts(state) | dict(state.metrics)
        if self._file is not None:
            self._file.append(self._row)

    def on_evaluation(self, state: TrainState) -> None:
        """Complete the row of this moment."""
        if state.evaluation is None or self._file is None:
            return
        summary = state.evaluation.summary().items()
        metrics = {f"evaluation_{name}": value for name, value in summary if name != "episodes"}
        if self._row.get(state.unit) == state.progress:
            self._row |= {**state.metrics, **metrics}
            self._file.replace_last(self._row)
        else:
            self._row = counts(state) | metrics
            self._file.append(self._row)

    def get_state(self) -> JsonObject:
        """The number of rows and the last one, which an evaluation may still complete."""
        if self._file is None:
            return {}
        sync(self._file.path)
        return {"rows": len(self._file.rows), "last": self._row}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Drop the rows after the checkpoint; the run writes them again."""
        if self._file is not None and saved:
            self._row = saved["last"]
            self._file.keep_rows(state.progress, saved["rows"], self._row)


def counts(state: TrainState) -> dict[str, Any]:
    """The columns that say where the run is."""
    return {name: getattr(state, name) for name in COUNTS[state.unit]}
