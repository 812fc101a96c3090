"""metrics.csv: one row of figures for each log interval."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.callback.base import Callback, TrainState

NAME = "metrics.csv"
COUNTS = ("env_steps", "updates", "episodes", "wall_seconds")
FIGURES = (
    "loss",
    "grad_norm",
    "learning_rate",
    "episode_return",
    "episode_length",
    "env_steps_per_second",
    "updates_per_second",
)
EVALUATION = ("evaluation_return_mean", "evaluation_return_std", "evaluation_length_mean")


class CSVLog(Callback):
    """Writes every row of figures at once; a resumed run continues its file.

    An evaluation completes the row of its env step, or makes one of its own where there is none.
    Figures that have no column yet get one, before the columns of the evaluation. The units are
    in docs/metrics.md.
    """

    def __init__(self):
        self._path: Path | None = None
        self._columns: tuple[str, ...] = (*COUNTS, *FIGURES, *EVALUATION)
        self._row: dict[str, Any] = {}
        self._row_starts_at = 0
        self._earlier_seconds = 0.0

    def on_train_begin(self, state: TrainState) -> None:
        """Keep the rows up to here, if the run is resumed; later ones will be written again."""
        self._path, self._row = state.run_dir / NAME, {}
        kept = [r for r in read_rows(self._path) if float(r["env_steps"]) <= state.env_steps]
        self._columns = (*COUNTS, *FIGURES, *EVALUATION)
        seconds = number_in(kept[-1], "wall_seconds") if kept else 0.0
        self._earlier_seconds = seconds if math.isfinite(seconds) else 0.0
        self._rewrite(kept)

    def on_log(self, state: TrainState) -> None:
        """Write a row."""
        self._row = self._counts(state) | dict(state.metrics)
        self._append(self._row)

    def on_evaluation(self, state: TrainState) -> None:
        """Complete the row of this env step."""
        if state.evaluation is None or self._path is None:
            return
        figures = {f"evaluation_{k}": v for k, v in state.evaluation.summary().items()}
        figures = {name: figures[name] for name in EVALUATION}
        if self._row.get("env_steps") != state.env_steps:
            self._row = self._counts(state) | figures
            self._append(self._row)
            return
        self._row |= figures
        with self._path.open("r+", newline="", encoding="utf-8") as file:
            file.seek(self._row_starts_at)
            file.write(csv_line([self._row.get(name, "") for name in self._columns]))
            file.truncate()

    def _counts(self, state: TrainState) -> dict[str, Any]:
        counts = {name: getattr(state, name) for name in COUNTS}
        return counts | {"wall_seconds": self._earlier_seconds + state.wall_seconds}

    def _append(self, row: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        if any(name not in self._columns for name in row):
            self._rewrite(read_rows(self._path), also=row)
        with self._path.open("a", newline="", encoding="utf-8") as file:
            self._row_starts_at = file.seek(0, os.SEEK_END)
            file.write(csv_line([row.get(name, "") for name in self._columns]))

    def _rewrite(self, rows: Sequence[Mapping[str, Any]], also: Iterable[str] = ()) -> None:
        """Replace the file by these rows, with columns for what is in them and in `also`."""
        assert self._path is not None
        names = dict.fromkeys([*self._columns, *(rows[0] if rows else ()), *also])
        self._columns = (*(name for name in names if name not in EVALUATION), *EVALUATION)
        partial = self._path.with_name(f".partial-{NAME}")
        lines = [csv_line([row.get(name, "") for name in self._columns]) for row in rows]
        partial.write_text(csv_line(self._columns) + "".join(lines), encoding="utf-8", newline="")
        os.replace(partial, self._path)


def csv_line(cells: Sequence[Any]) -> str:
    """One line of a CSV file; seven digits of a number, as many as float32 has."""
    buffer = io.StringIO()
    words = [f"{cell:.7g}" if isinstance(cell, float) else cell for cell in cells]
    csv.writer(buffer, lineterminator="\n").writerow(words)
    return buffer.getvalue()


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a metrics file that were written to their end; none where there is no file."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(io.StringIO(whole))
    if whole.strip() and "env_steps" not in (reader.fieldnames or ()):
        raise ValueError(
            f"{path} has no column env_steps, expected the metrics file of a run. Move it "
            "elsewhere: the run would overwrite it."
        )
    rows = [row for row in reader if None not in row and None not in row.values()]
    return [row for row in rows if row["env_steps"].isdigit()]


def number_in(row: Mapping[str, str], column: str) -> float:
    """A cell as a number; NaN where it holds none."""
    try:
        return float(row.get(column, ""))
    except ValueError:
        return math.nan


def best_return_in(run_dir: Path) -> float:
    """Highest mean return of an evaluation in a run's metrics file; minus infinity without one."""
    found = [number_in(row, "evaluation_return_mean") for row in read_rows(run_dir / NAME)]
    return max((value for value in found if math.isfinite(value)), default=-math.inf)
