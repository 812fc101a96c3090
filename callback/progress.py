"""Shows progress on standard error: a bar in a terminal, elsewhere a line per evaluation."""

from __future__ import annotations

import math
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from kytolly.callback.base import Callback, TrainState, places

MAX_ADDED = 3
REFRESH_SECONDS = 0.1  # the bar is drawn at most once in this time


class ProgressBar(Callback):
    """Bar over the run, with the newest returns, speed and time left.

    Draws only when a hook is called: it has no thread that competes with training. The cursor
    stays visible. The streams are restored when the bar ends, is deleted or the interpreter exits,
    so that an exception leaves the terminal as it was.

    Args:
        stream: Where to write; standard error by default.
        added: Metrics that other callbacks add, of which the first `MAX_ADDED` are shown.
    """

    def __init__(self, stream: TextIO | None = None, added: Mapping[str, float] | None = None):
        self._stream = stream
        self._added = {} if added is None else added
        self._progress: Progress | None = None
        self._close: weakref.finalize | None = None
        self._first_row: tuple[int, float] | None = None
        self._shown_at = -math.inf
        self._episode_return = math.nan
        self._compiles_since = math.nan

    def on_compile_begin(self, state: TrainState) -> None:
        """Say what takes the first seconds."""
        self._compiles_since = time.monotonic()
        size = "" if state.network is None else f"{state.parameters:,} parameters, "
        self._write_line(
            f"{state.env_name}: {size}compiling the {state.loop} loop of the training ..."
        )

    def on_train_begin(self, state: TrainState) -> None:
        """Show the bar, where there is a terminal to show it in."""
        self._stop()
        seconds = time.monotonic() - self._compiles_since
        if math.isfinite(seconds):
            self._write_line(f"{state.env_name}: compiled in {seconds:.1f} s")
        self._first_row = None
        self._shown_at = -math.inf
        self._episode_return = math.nan
        stream = self._stream or sys.stderr
        console = Console(file=stream, stderr=True, force_jupyter=False)
        if not is_terminal(stream) or console.is_dumb_terminal:
            return
        one_line = Column(no_wrap=True, overflow="ellipsis")
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[status]}", style="cyan", table_column=one_line),
            console=console,
            auto_refresh=False,
            expand=True,
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=self._stream is None,
        )
        progress.add_task(state.env_name, total=state.total, completed=state.progress, status="")
        self._progress = progress
        self._close = weakref.finalize(self, progress.stop)
        progress.start()
        console.show_cursor(True)

    def on_log(self, state: TrainState) -> None:
        """Move the bar."""
        if self._first_row is None:
            self._first_row = (state.progress, state.wall_seconds)
        newest = state.metrics.get("episode_return", math.nan)
        if math.isfinite(newest):
            self._episode_return = newest
        if time.monotonic() - self._shown_at >= REFRESH_SECONDS:
            self._draw(state)

    def on_evaluation(self, state: TrainState) -> None:
        """Move the bar, or write a line."""
        if self._progress is not None:
            self._draw(state)
            return
        evaluation = state.evaluation
        units, best = state.units, state.best_score
        if evaluation is None:
            return
        line = (
            f"{state.env_name}: {state.progress:,} of {state.total:,} {units}, evaluation "
            f"{evaluation.text} (best {best:.{max(evaluation.digits, places(best))}f})"
        )
        self._write_line(", ".join([line, *self._speed_and_time(state, units)]))

    def on_train_end(self, state: TrainState) -> None:
        """Draw once more and restore the terminal."""
        if self._progress is not None:
            self._draw(state)
        self._stop()

    def seconds_left(self, state: TrainState) -> float:
        """Seconds until the end at the speed since the first row of metrics; NaN where unknown.

        That speed includes evaluations and saving, but not compilation.
        """
        left = max(0, state.total - state.progress)
        steps, seconds = self._first_row or (state.progress, state.wall_seconds)
        steps, seconds = state.progress - steps, state.wall_seconds - seconds
        if steps > 0 and seconds > 0:
            return left * seconds / steps
        speed = state.metrics.get(f"{state.unit}_per_second", math.nan)
        return left / speed if speed > 0 else math.nan

    def _speed_and_time(self, state: TrainState, unit: str) -> list[str]:
        speed = state.metrics.get(f"{state.unit}_per_second", math.nan)
        left = self.seconds_left(state)
        words = [f"{name} {v:.4g}" for name, v in list(self._added.items())[:MAX_ADDED]]
        words += [f"{rate(speed)} {unit}/s"] if math.isfinite(speed) else []
        return words + ([f"{clock(left)} left"] if math.isfinite(left) else []) + memory(state)

    def _draw(self, state: TrainState) -> None:
        if self._progress is None:
            return
        returns = [f"return {short(self._episode_return, places(self._episode_return))}"]
        evaluation = state.evaluation
        if evaluation is not None:
            returns.append(f"evaluation {short(evaluation.score, evaluation.digits)}")
        known = returns if math.isfinite(self._episode_return) else returns[1:]
        status = ", ".join(known + self._speed_and_time(state, state.unit.split("_")[-1]))
        task = self._progress.task_ids[0]
        try:
            self._progress.update(task, completed=state.progress, status=status, refresh=True)
        except (OSError, ValueError):  # the terminal is gone; training continues
            self._progress = None
        self._shown_at = time.monotonic()

    def _write_line(self, line: str) -> None:
        try:
            print(line, file=self._stream or sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads any more; training continues
            return

    def _stop(self) -> None:
        self._progress = None
        if self._close is not None:
            try:
                self._close()
            except (OSError, ValueError):
                return


def is_terminal(stream: TextIO) -> bool:
    """True for a stream that is a terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def memory(state: TrainState) -> list[str]:
    """Memory of the device, or else of this process, now and at its peak, in words."""
    for kind, word in (("device", "GPU memory"), ("process", "memory")):
        now, peak = (state.metrics.get(f"{kind}_memory_{n}") for n in ("mb", "peak_mb"))
        if now is not None and peak is not None:
            return [f"{word} {now:,.0f} MiB (peak {peak:,.0f})"]
    return []


def rate(speed: float) -> str:
    """A number a second in few characters, and never as 0 where something moves."""
    return f"{speed:,.0f}" if speed >= 9.95 else f"{speed:.2g}"


def short(number: float, digits: int = 1) -> str:
    """A score in few characters."""
    return f"{number:.{digits}f}" if abs(number) < 100 else f"{number:.0f}"


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class OpeningLine(Callback):
    """Says a line once, even where training begins again after a fault.

    Args:
        text: The line; nothing is said of an empty one.
        say: Prints it.
    """

    def __init__(self, text: str, say: Callable[[str], object]):
        self._text, self._say = text, say

    def on_train_begin(self, state: TrainState) -> None:
        """Say it."""
        text = self._text
        self._text = ""
        if text:
            self._say(text)
