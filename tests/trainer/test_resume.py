"""What resuming refuses, and what a run does where its files cannot be written."""

import dataclasses
import errno
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

import kytolly.loop.session
import kytolly.record.files
from kytolly.callback.base import Callback
from kytolly.callback.csv_log import CSVLog
from kytolly.loop.device import DeviceLoop
from kytolly.record.metrics_file import read_rows
from kytolly.trainer import Trainer
from tests.record.same_run import TIMES


@pytest.fixture(scope="module")
def cfg(small_config):
    return dataclasses.replace(small_config, xla=False)


@pytest.fixture(scope="module")
def trained(cfg, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    Trainer(folder, progress=False).train(cfg, "CartPole-v1")
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def refusal(run, cfg, env="CartPole-v1"):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ValueError) as error:
        Trainer(run, progress=False).train(cfg, env, resume=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert "\n" not in str(error.value)
    return str(error.value)


def test_settings_that_change_shapes_are_named(run, cfg):
    other = dataclasses.replace(cfg, hidden_units=(8,), replay_capacity=600)
    message = refusal(run, other)
    assert "hidden_units was [16], now [8]" in message
    assert "replay_capacity was 500, now 600" in message


def test_a_run_does_not_become_shorter_than_it_is(run, cfg):
    message = refusal(run, dataclasses.replace(cfg, total_env_steps=cfg.total_env_steps - 40))
    assert "expected at least as many" in message


def test_another_environment_is_named(run, cfg):
    message = refusal(run, cfg, "Acrobot-v1")
    assert "is Acrobot-v1" in message and "trained on CartPole-v1" in message


def test_a_run_without_its_checkpoints_is_not_begun_anew(run, cfg):
    shutil.rmtree(run / "checkpoints")
    assert "holds no checkpoint" in refusal(run, cfg)


def test_a_run_that_is_being_trained_is_not_resumed(run, cfg):
    class Second(Callback):
        def on_log(self, state):
            self.message = refusal(run, cfg)

    second = Second()
    longer = dataclasses.replace(cfg, total_env_steps=500)
    Trainer(run, progress=False).train(longer, "CartPole-v1", [second], resume=True)
    assert "is in use by another process" in second.message


def test_the_best_network_is_not_forgotten_and_one_damaged_copy_of_it_is_mended(run, cfg):
    class Best(Callback):
        def on_train_begin(self, state):
            self.score = state.best_score

    content, scores = (run / "best.keras").read_bytes(), []
    copies = [p for p in (run / "checkpoints").glob("best-*") if p.read_bytes() == content]
    for damaged in (run / "best.keras", copies[0]):
        damaged.write_bytes(content[:100])
        best = Best()
        Trainer(run, progress=False).train(cfg, "CartPole-v1", [best], resume=True)
        scores.append(best.score)
        assert damaged.read_bytes() == content
    assert scores[0] == scores[1] > 0


def test_ctrl_c_within_a_log_interval_changes_nothing(cfg, tmp_path, monkeypatch):
    """The signal comes in the call to 160 env steps; the row of 200 has the sums of both parts."""
    monkeypatch.setattr(kytolly.loop.session, "MAX_UNITS_PER_CALL", 20)
    Trainer(tmp_path / "whole", progress=False).train(cfg, "CartPole-v1")
    call = DeviceLoop.run

    def press(loop, *args):
        if int(loop.agent.env_steps) == 140:
            signal.raise_signal(signal.SIGINT)
        return call(loop, *args)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(DeviceLoop, "run", press)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt, match=r"saved in .* after 160 env steps"):
                Trainer(run, progress=False).train(cfg, "CartPole-v1")
        finally:
            signal.signal(signal.SIGINT, before)
    Trainer(run, progress=False).train(cfg, "CartPole-v1", resume=True)
    rows, whole = (
        [row | dict.fromkeys(TIMES) for row in read_rows(tmp_path / name / "metrics.csv")]
        for name in ("run", "whole")
    )
    assert rows == whole and len(rows) == 4
    found, expected = (
        tf.train.load_checkpoint(str(tmp_path / name / "checkpoints" / "ckpt-400"))
        for name in ("run", "whole")
    )
    for key in expected.get_variable_to_shape_map():
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
            np.testing.assert_array_equal(found.get_tensor(key), expected.get_tensor(key), key)


@pytest.mark.learning
def test_a_full_disk_does_not_end_training_and_earlier_files_stay_whole(cfg, tmp_path, monkeypatch):
    class FillDisk(Callback):
        """From 200 env steps on nothing can be written whole; nor can rows be, until 300."""

        def on_interval_end(self, state):
            if state.env_steps == 200:
                monkeypatch.setattr(kytolly.record.files, "sync", refuse)
                monkeypatch.setattr(CSVLog, "on_log", refuse)
            if state.env_steps == 300:
                monkeypatch.setattr(CSVLog, "on_log", on_log)

    def refuse(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    on_log, run = CSVLog.on_log, tmp_path / "run"
    with pytest.warns(UserWarning, match="cannot be written") as caught:
        result = Trainer(run, progress=False).train(cfg, "CartPole-v1", [FillDisk()])
    assert result.stopped_by == "total_env_steps" and result.summary["env_steps"] == 400
    kinds = {"checkpoints/ and best.keras", "metrics.csv", "result.json", "learning_curve.png"}
    assert set(result.unwritten) == kinds
    ours = [str(w.message) for w in caught if "cannot be written" in str(w.message)]
    assert len(ours) == len(kinds)  # once for each
    assert {row["env_steps"] for row in read_rows(run / "metrics.csv")} >= {"100", "200"}
    assert not (run / "result.json").exists() and not list(run.rglob(".partial-*"))
    monkeypatch.undo()
    resumed = Trainer(run, progress=False).train(cfg, "CartPole-v1", resume=True)
    assert resumed.unwritten == {} and (run / "result.json").exists()
    rows = [row["env_steps"] for row in read_rows(run / "metrics.csv")]
    assert rows == ["100", "200", "300", "400"]


@pytest.mark.learning
def test_a_folder_that_is_removed_does_not_end_training(cfg, tmp_path):
    class Remove(Callback):
        def on_log(self, state):
            if state.env_steps == 300:
                shutil.rmtree(state.run_dir)

    with pytest.warns(UserWarning, match="Training goes on"):
        result = Trainer(tmp_path / "run", progress=False).train(cfg, "CartPole-v1", [Remove()])
    assert result.summary["env_steps"] == 400
    assert {"metrics.csv", "events.* of TensorBoard", "result.json"} <= set(result.unwritten)
    assert not (tmp_path / "run").exists()
