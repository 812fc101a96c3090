"""Logs runs to MLflow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kytolly.callback.base import TrainState
from kytolly.callback.tracking import Tracking, tracker

MAX_LENGTH = 500  # characters of a parameter


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

    def open(self, state: TrainState, settings: dict[str, Any], run_id: str | None) -> Any:
        """A client of MLflow, and a run."""
        client = tracker("mlflow").MlflowClient(tracking_uri=self.tracking_uri)
        self._id = run_id
        if run_id is not None:
            client.update_run(run_id, status="RUNNING")
            return client
        found = client.get_experiment_by_name(self.experiment)
        if found is None:
            folder = self.artifact_dir and Path(self.artifact_dir).resolve().as_uri()
            experiment_id = client.create_experiment(self.experiment, artifact_location=folder)
        else:
            experiment_id = found.experiment_id
        run = client.create_run(experiment_id, run_name=state.run_dir.name, tags=self.tags)
        self._id = run.info.run_id
        for name, value in settings.items():
            client.log_param(self._id, name, str(value)[:MAX_LENGTH])
        return client

    def log(self, metrics: dict[str, float], state: TrainState) -> None:
        """Log numbers in one call."""
        entities, now = tracker("mlflow.entities"), int(time.time() * 1_000)
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
