"""metrics.csv: one row of metrics for each log interval."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kytolly.record.files import open_regular, read_regular, write_text

NAME = "metrics.csv"
MAX_BYTES = 2**28  # of a file that is read: a million rows
MAX_NUMBER = 3.4028235e38  # of float32, in which training computes
COUNTS = {  # by the unit in which a run counts
    "env_steps": ("env_steps", "updates", "episodes", "wall_seconds"),
    "updates": ("updates", "wall_seconds"),
}
METRICS = (  # of agents: their columns are the same in every run
    "loss",
    "grad_norm",
    "learning_rate",
    "episode_return",
    "episode_length",
    "env_steps_per_second",
    "updates_per_second",
)
EVALUATION_RETURN = "evaluation_return_mean"
EVALUATION = (EVALUATION_RETURN, "evaluation_return_std", "evaluation_length_mean")


class MetricsFile:
    """The metrics file of one run, which grows by rows.

    A metric that has no column yet gets one, before the columns of the evaluation. Rows that could
    not be written are written with the next one.

    Attributes:
        path: The file.
        columns: Names, in the order of the file.
        rows: All rows.
    """

    def __init__(self, run_dir: Path, unit: str = "env_steps"):
        self.path = run_dir / NAME
        self.unit = unit
        self.columns: tuple[str, ...] = COUNTS[unit]
        if unit == "env_steps":
            self.columns += METRICS + EVALUATION
        self.rows: list[Mapping[str, object]] = []
        self._last_row_starts_at = 0
        self._is_whole = False  # the file holds what `rows` says

    def keep_rows(
        self, done: int, count: int | None = None, last: Mapping[str, object] | None = None
    ) -> None:
        """Keep the rows up to a count, 0 of a new run; the file is written if that changes it.

        Args:
            done: Env steps, or what else the run counts, of the checkpoint.
            count: How many rows belong to the checkpoint; None: all up to there.
            last: The last of them, as it was then.
        """
        rows = read_rows(self.path, self.unit)
        self.rows = [*[row for row in rows if float(row[self.unit]) <= done][:count]]
        if last and count == len(self.rows):
            self.rows[-1] = last
        self.columns = column_order([*self.columns, *(rows[0] if rows else ())])
        if not self.path.is_file() or self.path.read_text("utf-8", "replace") != self._text():
            self._rewrite()
        self._is_whole = True

    def append(self, row: Mapping[str, object]) -> None:
        """Write a row; who reads the file finds it when this returns."""
        self.rows.append(row)
        self._write_last(row, None)

    def replace_last(self, row: Mapping[str, object]) -> None:
        """Write the newest row again, with other values."""
        self.rows[-1] = row
        self._write_last(row, self._last_row_starts_at)

    def _write_last(self, row: Mapping[str, object], start: int | None) -> None:
        """Write the newest row from a byte of the file on, or at its end; if need be, all rows."""
        columns = self.columns
        self.columns = column_order([*columns, *row])
        if self.columns != columns or not self._is_whole or start == 0:
            self._rewrite()
            return
        self._is_whole = False
        with open(self.path, "r+", newline="", encoding="utf-8", opener=open_regular) as file:
            place = (0, os.SEEK_END) if start is None else (start, os.SEEK_SET)
            self._last_row_starts_at = file.seek(*place)
            file.write(self._line(row))
            file.truncate()
        self._is_whole = True

    def _line(self, row: Mapping[str, object]) -> str:
        return csv_line([row.get(name, "") for name in self.columns])

    def _text(self) -> str:
        return csv_line(self.columns) + "".join(map(self._line, self.rows))

    def _rewrite(self) -> None:
        self._last_row_starts_at, self._is_whole = 0, False
        write_text(self.path, self._text())
        self._is_whole = True


def column_order(names: Sequence[str]) -> tuple[str, ...]:
    """Each name once, those of evaluations last."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: name.startswith("evaluation_")))


def csv_line(cells: Sequence[object]) -> str:
    """One line of a CSV file; seven digits of a number, as many as float32 has."""
    buffer = io.StringIO()
    words = [f"{cell:.7g}" if isinstance(cell, float) else cell for cell in cells]
    csv.writer(buffer, lineterminator="\n").writerow(words)
    return buffer.getvalue()


def read_rows(path: Path, unit: str = "env_steps") -> list[dict[str, str]]:
    """The rows of a metrics file that were written to their end; none where there is no file."""
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8", "replace")
        whole = io.StringIO(text[: text.rfind("\n") + 1])
        reader = csv.DictReader(whole)
        rows = list(reader)
        if whole.getvalue().strip() and unit not in (reader.fieldnames or ()):
            raise ValueError(f"has no column {unit}")
    except FileNotFoundError:
        return []
    except (ValueError, csv.Error) as error:  # such as a cell without end
        reason = f"cannot be read ({error})" if isinstance(error, csv.Error) else error
        raise ValueError(
            f"{path} {reason}, expected the metrics file of a run. Move it elsewhere: the run "
            "would overwrite it."
        ) from None
    rows = [row for row in rows if None not in row and None not in row.values()]
    return [row for row in rows if re.fullmatch("[0-9]{1,18}", row[unit])]


def number_in(row: Mapping[str, str], column: str) -> float:
    """A cell as a number; NaN where it holds none that float32 has.

    Larger numbers, such as 1e308, have no mean, and no axis that holds them.
    """
    try:
        value = float(row.get(column, ""))
    except ValueError:
        return math.nan
    return value if abs(value) <= MAX_NUMBER else math.nan


def evaluations(run_dir: Path) -> list[tuple[int, float]]:
    """Env steps and mean return of every evaluation during a run, none where there is no file."""
    rows = [row for row in read_rows(run_dir / NAME) if row.get(EVALUATION_RETURN)]
    return [(int(row["env_steps"]), number_in(row, EVALUATION_RETURN)) for row in rows]
