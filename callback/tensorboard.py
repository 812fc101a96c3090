"""Writes scalars, histograms and settings for TensorBoard."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from kytolly.callback.base import Callback, JsonObject, TrainState
from kytolly.record.files import open_regular, sync

Settings: TypeAlias = dict[str, bool | int | float | str]
EVENTS = "events.out.tfevents.*"
TAGS = {
    "env_steps_per_second": "speed/env_steps_per_second",
    "updates_per_second": "speed/updates_per_second",
    "device_idle": "speed/device_idle",
    "episode_return": "episode/return",
    "episode_length": "episode/length",
    "process_memory_mb": "memory/process_mb",
    "process_memory_peak_mb": "memory/process_peak_mb",
    "device_memory_mb": "memory/device_mb",
    "device_memory_peak_mb": "memory/device_peak_mb",
}
HISTOGRAM_BUCKETS = 30


class TensorBoardLog(Callback):
    """Writes `events.*` into the run's folder; the step is what is done of the run.

    Groups: `speed`, `train`, `episode`, `evaluation`, `memory`, `gpu`, `weights`; other metrics are
    in `train`. A metric that is not a number has no point. All metrics of a row are one record: a
    call for each would cost ten times as much. A resumed run cuts off the points after its
    checkpoint. Settings and the newest metrics of several runs are compared in the tab HParams.

    Args:
        tags: "kytolly", or "sb3" for the tags of Stable-Baselines3.
    """

    writes = "events.* of TensorBoard"

    def __init__(self, tags: str = "kytolly"):
        self._run_dir: Path | None = None
        self._points = log_points
        if tags == "sb3":
            from kytolly.callback.sb3_tags import sb3_points

            self._points = sb3_points
        self._row: dict[str, float] = {}  # the newest one that is written
        self._writer: Any = None
        self._gpu: Any = None
        self._settings, self._written_settings = Settings(), Settings()

    def on_train_begin(self, state: TrainState) -> None:
        """Write the settings of a new run; a resumed run writes nothing before its first point."""
        self._run_dir = state.run_dir
        self._gpu = None
        if "GPU" in state.device:
            from kytolly.machine.gpu import Gpu

            self._gpu = Gpu.of(state.device)
        self._settings = run_settings(state)
        self._written_settings = {}
        self._row = dict(state.metrics)
        if state.progress == 0:
            keep_events(state.run_dir, {})
            self._open(0)

    def on_log(self, state: TrainState) -> None:
        """Write the newest row of metrics."""
        self._row = dict(state.metrics)
        metrics = self._points(state, self._row)
        if self._gpu is not None:
            metrics |= {f"gpu/{name}": value for name, value in self._gpu.metrics().items()}
        self._write(scalars(metrics), state.progress)

    def on_evaluation(self, state: TrainState) -> None:
        """Write the evaluation and a histogram of every weight."""
        if state.evaluation is None:
            return
        added = {name: v for name, v in state.metrics.items() if name not in self._row}
        self._row |= added
        values = scalars(self._points(state, added, state.evaluation.summary()))
        if state.network is not None:
            for index, weight in enumerate(state.network.weights):
                path = re.sub(r"_\d+(?=/)", "", weight.path)  # Keras numbers a process's layers
                values.append(histogram(f"weights/{index}/{path}", np.asarray(weight)))
        self._write(values, state.progress)

    def on_train_end(self, state: TrainState) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._run_dir = None

    def get_state(self) -> JsonObject:
        """The sizes of the files, and the settings that are in them."""
        if self._run_dir is None:
            return {}
        for path in self._run_dir.glob(EVENTS):
            if path.is_file():
                sync(path)
        return {"bytes": event_sizes(self._run_dir), "settings": self._written_settings}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Cut off what was written after the checkpoint."""
        if saved:
            self._written_settings = saved["settings"]
            keep_events(state.run_dir, saved["bytes"])

    def _open(self, done: int) -> Any:
        writer: Any = tf.summary.create_file_writer(str(self._run_dir))
        settings = {name: value for name, value in self._settings.items() if name != "device"}
        with writer.as_default(step=done):  # which flushes at its end
            if settings != self._written_settings:
                rows = [f"| {name} | {value} |" for name, value in self._settings.items()]
                tf.summary.text("settings", "\n".join(["| setting | value |", "| - | - |", *rows]))
                hparams.hparams(self._settings)
        self._written_settings, self._writer = settings, writer
        return writer

    def _write(self, values: Sequence[object], done: int) -> None:
        if self._run_dir is None or not values:
            return
        writer: Any = self._writer or self._open(done)
        before = sum(event_sizes(self._run_dir).values())
        record = tf.compat.v1.Summary(value=values).SerializeToString()
        with writer.as_default():
            tf.summary.experimental.write_raw_pb(record, step=done)
        if sum(event_sizes(self._run_dir).values()) <= before:
            raise OSError("the files do not grow: the disk is full, or they were removed")


def log_points(
    state: TrainState, row: Mapping[str, float], evaluation: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Metrics by tag; a name with a slash has its group already."""
    points = {TAGS.get(k, k if "/" in k else f"train/{k}"): v for k, v in row.items()}
    return points | {f"evaluation/{k}": v for k, v in (evaluation or {}).items()}


def run_settings(state: TrainState) -> Settings:
    """The settings of a run, in the types that TensorBoard's table of runs takes."""
    fields = {f.name: getattr(state.config, f.name) for f in dataclasses.fields(state.config)}
    # The loop and the device that were chosen, in place of "auto".
    fields |= {"environment": state.env_name, "loop": state.loop, "device": state.device}
    plain = (bool, int, float, str)
    return {name: v if isinstance(v, plain) else str(v) for name, v in fields.items()}


def scalars(metrics: Mapping[str, float]) -> list[Any]:
    """A summary value for each metric that is a number."""
    return [
        tf.compat.v1.Summary.Value(tag=tag, simple_value=float(value))
        for tag, value in metrics.items()
        if math.isfinite(value)
    ]


def histogram(tag: str, values: np.ndarray) -> Any:
    """A summary value with the distribution of the finite numbers."""
    numbers = values[np.isfinite(values)].astype(np.float64)
    counts, edges = np.histogram(numbers, HISTOGRAM_BUCKETS if numbers.size else 1)
    proto = tf.compat.v1.HistogramProto(
        min=edges[0],
        max=edges[-1],
        num=numbers.size,
        sum=numbers.sum(),
        sum_squares=np.square(numbers).sum(),
        # A bucket is named by its upper end; the empty one before the first ends where that begins.
        bucket_limit=edges,
        bucket=[0, *counts],
    )
    return tf.compat.v1.Summary.Value(tag=tag, histo=proto)


def event_sizes(run_dir: Path) -> dict[str, int]:
    """The sizes in bytes of a run's event files, by name."""
    files = [path for path in sorted(run_dir.glob(EVENTS)) if path.is_file()]
    return {path.name: path.stat().st_size for path in files}


def keep_events(run_dir: Path, sizes: Mapping[str, int]) -> None:
    """Cut a run's event files to these sizes in bytes, and remove those without one.

    They only grow, record by record, so what is kept is what was written first.
    """
    for name, size in event_sizes(run_dir).items():
        if name not in sizes:
            (run_dir / name).unlink()
        elif size > sizes[name]:
            with open(run_dir / name, "r+b", opener=open_regular) as file:
                file.truncate(sizes[name])
