"""metrics.csv: one row of metrics for each log interval."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.record.files import write_text

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

    A metric that has no column yet gets one, before the columns of the evaluation. Rows that could
    not be written are written with the next one.

    Attributes:
        path: The file.
        columns: Names, in the order of the file.
        rows: All rows.
    """

    def __init__(self, run_dir: Path):
        self.path = run_dir / NAME
        self.columns: tuple[str, ...] = (*COUNTS, *METRICS, *EVALUATION)
        self.rows: list[Mapping[str, Any]] = []
        self._last_row_starts_at = 0
        self._is_whole = False  # the file holds what `rows` says

    def keep_rows(
        self, env_steps: int, count: int | None = None, last: Mapping[str, Any] | None = None
    ) -> None:
        """Keep the rows up to an env step, 0 of a new run; the file is written if that changes it.

        Args:
            env_steps: Of the checkpoint.
            count: How many rows belong to the checkpoint; None: all up to its env step.
            last: The last of them, as it was then.
        """
        found = read_rows(self.path)
        self.rows = [row for row in found if float(row["env_steps"]) <= env_steps][:count]
        if last and count == len(self.rows):
            self.rows[-1] = last
        names = dict.fromkeys([*self.columns, *(found[0] if found else ())])
        self.columns = (*(name for name in names if name not in EVALUATION), *EVALUATION)
        if not self.path.is_file() or self.path.read_text("utf-8", "replace") != self._text():
            self._rewrite()
        self._is_whole = True

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row; who reads the file finds it when this returns."""
        self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        if new or not self._is_whole:
            self.columns = (*self.columns[: -len(EVALUATION)], *new, *EVALUATION)
            self._rewrite()
            return
        self._is_whole = False
        with self.path.open("r+", newline="", encoding="utf-8") as file:
            self._last_row_starts_at = file.seek(0, os.SEEK_END)
            file.write(self._line(row))
        self._is_whole = True

    def replace_last(self, row: Mapping[str, Any]) -> None:
        """Write the newest row again, with other values in the columns that there are."""
        self.rows[-1] = row
        if not (self._is_whole and self._last_row_starts_at):
            self._rewrite()
            return
        self._is_whole = False
        with self.path.open("r+", newline="", encoding="utf-8") as file:
            file.seek(self._last_row_starts_at)
            file.write(self._line(row))
            file.truncate()
        self._is_whole = True

    def _line(self, row: Mapping[str, Any]) -> str:
        return csv_line([row.get(name, "") for name in self.columns])

    def _text(self) -> str:
        return csv_line(self.columns) + "".join(map(self._line, self.rows))

    def _rewrite(self) -> None:
        self._last_row_starts_at, self._is_whole = 0, False
        write_text(self.path, self._text())
        self._is_whole = True


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
    rows, columns = [], None
    with contextlib.suppress(csv.Error):  # a null byte, or a cell without end
        rows, columns = list(reader), reader.fieldnames
    if whole.strip() and "env_steps" not in (columns or ()):
        raise ValueError(
            f"{path} has no column env_steps, expected the metrics file of a run. Move it "
            "elsewhere: the run would overwrite it."
        )
    rows = [row for row in rows if None not in row and None not in row.values()]
    return [row for row in rows if re.fullmatch("[0-9]{1,18}", row["env_steps"])]


def number_in(row: Mapping[str, str], column: str) -> float:
    """A cell as a number; NaN where it holds none."""
    try:
        return float(row.get(column, ""))
    except ValueError:
        return math.nan
