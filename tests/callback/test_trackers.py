"""Runs are logged by the real packages, without a network."""

import struct
import sys
import time

import pytest

from kytolly import DQNConfig, Trainer
from kytolly.callback.base import Callback
from kytolly.callback.tracking import MLflowLogger, WandbLogger
from tests.helpers.states import SMALL, Adds


class Stops(Callback):
    def on_evaluation(self, state):
        raise RuntimeError("a mistake")


def train(path, *callbacks, resume=False, **settings):
    cfg = DQNConfig(**{**SMALL, **settings})
    trainer = Trainer(path, progress=False)
    return trainer.train(cfg, "CartPole-v1", [*callbacks, Adds({"mine": 0.5})], resume=resume)


@pytest.fixture
def client(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "tracked").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return mlflow.MlflowClient(tracking_uri=uri)


def test_mlflow_has_settings_metrics_evaluations_result_and_files_also_of_a_resumed_run(
    client, tmp_path
):
    train(tmp_path / "run", MLflowLogger(tags={"kind": "test"}), total_env_steps=200)
    run = train(tmp_path / "run", MLflowLogger(), resume=True)
    experiment = client.get_experiment_by_name("kytolly")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.info.run_name == "run"
    assert found.data.params["batch_size"] == "32" and found.data.tags["kind"] == "test"
    assert found.data.tags["stopped_by"] == "total_env_steps"
    assert found.data.metrics["final_return_mean"] == run.evaluation.return_mean
    history = client.get_metric_history(found.info.run_id, "mine")
    assert [(m.step, m.value) for m in history] == [(n, 0.5) for n in run_steps(run)]
    evaluations = client.get_metric_history(found.info.run_id, "evaluation_return_mean")
    assert len(evaluations) == 2 and evaluations[-1].step == run.summary["env_steps"]
    names = {artifact.path for artifact in client.list_artifacts(found.info.run_id)}
    assert {"best.keras", "config.yaml", "metrics.csv", "result.json"} <= names


def run_steps(run):
    return [row["env_steps"] for row in run.history]


def test_mlflow_says_that_a_run_failed(client, tmp_path):
    with pytest.raises(RuntimeError, match="a mistake"):
        train(tmp_path / "run", MLflowLogger(), Stops())
    experiment = client.get_experiment_by_name("kytolly")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FAILED" and "mine" in found.data.metrics


def wandb_records(folder):
    """What an offline run of wandb holds on disk: records in blocks, as LevelDB writes its log."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, place, parts, records = path.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        if 32_768 - place % 32_768 < 7:  # the rest of a block, too short for a header
            place += 32_768 - place % 32_768
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(proto.Record.FromString(parts))
            parts = b""
    return records


def test_wandb_offline_has_settings_metrics_evaluations_result_and_files(tmp_path):
    pytest.importorskip("wandb")
    run = train(tmp_path / "run", WandbLogger(project="test", mode="offline", tags=["one"]))
    deadline, records = time.monotonic() + 60, []
    while not any(r.HasField("exit") for r in records) and time.monotonic() < deadline:
        time.sleep(0.2)  # a process of wandb writes the file, and finish() does not wait for it
        records = wandb_records(run.run_dir)
    (begun,) = [r.run for r in records if r.HasField("run")]
    config = {item.key: item.value_json for item in begun.config.update}
    assert begun.project == "test" and config["batch_size"] == "32" and list(begun.tags) == ["one"]
    rows = [
        {(item.key or item.nested_key[0]): item.value_json for item in r.history.item}
        for r in records
        if r.HasField("history")
    ]
    mine = [int(row["env_steps"]) for row in rows if row.get("mine") == "0.5"]
    assert mine == run_steps(run)
    assert sum("evaluation_return_mean" in row for row in rows) == 2
    (saved,) = run.run_dir.glob("wandb/offline-run-*/files")
    names = {path.name for path in saved.iterdir()}
    assert {"best.keras", "config.yaml", "metrics.csv", "result.json"} <= names
    summary = [i.key or i.nested_key[0] for r in records for i in r.summary.update]
    assert "final_return_mean" in summary
    assert [r.exit.exit_code for r in records if r.HasField("exit")] == [0]


@pytest.mark.parametrize(("kind", "package"), [(WandbLogger, "wandb"), (MLflowLogger, "mlflow")])
def test_a_package_that_is_missing_is_named_before_training(tmp_path, monkeypatch, kind, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"{package} .*pip install \"kytolly\[loggers\]\""):
        train(tmp_path / "run", kind())
