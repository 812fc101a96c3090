"""Loggers of experiment trackers: Weights & Biases and MLflow."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kytolly.callback.base import Callback, JsonObject, TrainState
from kytolly.callback.tensorboard import Settings, run_settings

Mode: TypeAlias = Literal["online", "offline", "disabled"]
MAX_PARAMETER_LENGTH = 500  # characters, of MLflow
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
        self._row = dict(state.metrics)
        self._id = None
        self._error = sys.exc_info()[1]
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

    def get_state(self) -> JsonObject:
        """The id of the tracker's run."""
        return {"id": self._id}

    def set_state(self, state: TrainState, saved: JsonObject) -> None:
        """Go on in the tracker's run."""
        self._id = saved["id"]

    def open(self, state: TrainState, settings: Settings, run_id: str | None) -> Any:
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


class WandbLogger(Tracking):
    """Logs settings, metrics, evaluations and the run's files to Weights & Biases.

    The horizontal axis is `env_steps`, or `updates` of supervised training.

    Args:
        project: Name of the project.
        mode: "online", "offline" (`wandb sync` uploads the run later) or "disabled"; None leaves
            it to wandb, and so to the variable WANDB_MODE.
        options: Further arguments of `wandb.init`, such as `name`, `entity` or `tags`.

    Raises:
        ValueError: wandb is not installed, or nobody has logged in, when training begins.
    """

    writes = "Weights & Biases"

    def __init__(self, project: str = "kytolly", mode: Mode | None = None, **options: object):
        super().__init__()
        self.project, self.mode, self.options = project, mode, options

    def open(self, state: TrainState, settings: Settings, run_id: str | None) -> Any:
        """A run of wandb; its files lie in the run's own folder before they are uploaded."""
        wandb = tracker("wandb")
        arguments = {"name": state.run_dir.name, "dir": str(state.run_dir), "reinit": "create_new"}
        arguments["settings"] = wandb.Settings(console="off", silent=True)
        if run_id:
            arguments |= {"id": run_id, "resume": "allow"}
        arguments |= self.options
        try:
            run = wandb.init(project=self.project, mode=self.mode, config=settings, **arguments)
        except wandb.errors.UsageError as error:
            raise ValueError(
                f"wandb cannot begin a run ({' '.join(str(error).split()):.200}). Log in by `wandb "
                'login`, or give WandbLogger(mode="offline").'
            ) from None
        run.define_metric("*", step_metric=state.unit)
        self._id = run.id
        return run

    def log(self, metrics: dict[str, float], state: TrainState) -> None:
        """Log numbers."""
        self._run.log({**metrics, state.unit: state.progress})

    def log_result(self, numbers: dict[str, float], stopped_by: str, paths: list[Path]) -> None:
        """The numbers are the run's summary."""
        self._run.summary.update({**numbers, "stopped_by": stopped_by})
        for path in paths:
            self._run.save(str(path), base_path=str(path.parent), policy="now")

    def close(self, failed: bool) -> None:
        """Finish the run: what is left is uploaded."""
        self._run.finish(exit_code=1 if failed else 0)


class MLflowLogger(Tracking):
    """Logs settings, metrics, evaluations and the run's files to MLflow.

    The step is the number of env steps, or of updates of supervised training.

    Args:
        experiment: Name of the experiment, which is made if it does not exist.
        tracking_uri: A server, or a database such as "sqlite:///mlflow.db", which needs no server;
            None leaves it to MLflow, and so to the variable MLFLOW_TRACKING_URI.
        artifact_dir: Folder for the files of a new experiment; None leaves it to MLflow.
        tags: Of the run, by name.
    """

    writes = "MLflow"

    def __init__(
        self,
        experiment: str = "kytolly",
        tracking_uri: str | None = None,
        artifact_dir: str | Path | None = None,
        tags: dict[str, str] | None = None,
    ):
        super().__init__()
        self.experiment, self.tracking_uri = experiment, tracking_uri
        self.artifact_dir, self.tags = artifact_dir, tags

    def open(self, state: TrainState, settings: Settings, run_id: str | None) -> Any:
        """A client of MLflow, and a run."""
        client = tracker("mlflow").MlflowClient(tracking_uri=self.tracking_uri)
        self._id = run_id
        if run_id is not None:
            client.update_run(run_id, status="RUNNING")
            return client
        experiment = client.get_experiment_by_name(self.experiment)
        if experiment is None:
            folder = self.artifact_dir and Path(self.artifact_dir).resolve().as_uri()
            experiment_id = client.create_experiment(self.experiment, artifact_location=folder)
        else:
            experiment_id = experiment.experiment_id
        run = client.create_run(experiment_id, run_name=state.run_dir.name, tags=self.tags)
        self._id = run.info.run_id
        for name, value in settings.items():
            client.log_param(self._id, name, str(value)[:MAX_PARAMETER_LENGTH])
        return client

    def log(self, metrics: dict[str, float], state: TrainState) -> None:
        """Log numbers in one call."""
        entities = tracker("mlflow.entities")
        now = int(time.time() * 1_000)
        rows = [entities.Metric(k, v, now, state.progress) for k, v in metrics.items()]
        self._run.log_batch(self._id, metrics=rows)

    def log_result(self, numbers: dict[str, float], stopped_by: str, paths: list[Path]) -> None:
        """The numbers are metrics, the reason of the end is a tag, the files are artifacts."""
        for name, value in numbers.items():
            self._run.log_metric(self._id, name, value)
        self._run.set_tag(self._id, "stopped_by", stopped_by)
        for path in paths:
            self._run.log_artifact(self._id, str(path))

    def close(self, failed: bool) -> None:
        """End the run."""
        self._run.set_terminated(self._id, "FAILED" if failed else "FINISHED")


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
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
