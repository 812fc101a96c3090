"""metrics.csv: one row of metrics for each log interval."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

NAME = "metrics.csv"
COUNTS = ("env_steps", "updates", "episodes", "wall_seconds")
METRICS = (
    "loss",
    "grad_norm",
    "learning_rate",
    "episode_return",
    "episode_length",
    "env_steps_per_second",
    "updates_per_second",
)
EVALUATION = ("evaluation_return_mean", "evaluation_return_std", "evaluation_length_mean")


class MetricsFile:
    """The metrics file of one run, which grows by rows.

    A metric that has no column yet gets one, before the columns of the evaluation.

    Attributes:
        path: The file.
        columns: Names, in the order of the file.
    """

    def __init__(self, run_dir: Path):
        self.path = run_dir / NAME
        self.columns: tuple[str, ...] = (*COUNTS, *METRICS, *EVALUATION)
        self._last_row_starts_at = 0

    def keep_rows(self, env_steps: int) -> float:
        """Keep the rows up to an env step, 0 of a new run; returns their wall-clock seconds."""
        rows = [row for row in read_rows(self.path) if float(row["env_steps"]) <= env_steps]
        self._rewrite(rows)
        seconds = number_in(rows[-1], "wall_seconds") if rows else 0.0
        return seconds if math.isfinite(seconds) else 0.0

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row; it is on disk when this returns."""
        if any(name not in self.columns for name in row):
            self._rewrite(read_rows(self.path), also=row)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            self._last_row_starts_at = file.seek(0, os.SEEK_END)
            file.write(csv_line([row.get(name, "") for name in self.columns]))

    def replace_last(self, row: Mapping[str, Any]) -> None:
        """Write the newest row again, with other values in the columns that there are."""
        with self.path.open("r+", newline="", encoding="utf-8") as file:
            file.seek(self._last_row_starts_at)
            file.write(csv_line([row.get(name, "") for name in self.columns]))
            file.truncate()

    def _rewrite(self, rows: Sequence[Mapping[str, Any]], also: Iterable[str] = ()) -> None:
        """Replace the file by these rows, with columns for what is in them and in `also`."""
        names = dict.fromkeys([*self.columns, *(rows[0] if rows else ()), *also])
        self.columns = (*(name for name in names if name not in EVALUATION), *EVALUATION)
        partial = self.path.with_name(f".partial-{NAME}")
        lines = [csv_line([row.get(name, "") for name in self.columns]) for row in rows]
        partial.write_text(csv_line(self.columns) + "".join(lines), encoding="utf-8", newline="")
        os.replace(partial, self.path)


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
