"""Supervised runs from end to end, and what they leave on disk."""

import dataclasses
import json
import math
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.callback.base import Callback
from kytolly.config.supervised import SupervisedConfig
from kytolly.loop.recovery import OutOfMemory
from kytolly.loop.supervised import Learner, SupervisedLoop
from kytolly.record.metrics_file import read_rows
from kytolly.record.saved_run import SavedRun
from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.text.rows import Ragged
from kytolly.trainer import Trainer
from tests.record.same_run import TIMES, assert_same_tensors
from tests.search.text.tiny_task import ContainsWord, small_config
from tests.test_examples import PYTHON_BLOCK

VARIES = TIMES | {"tokens_per_second"}


def train(folder, cfg, cb=(), task=None, **options):
    trainer = Trainer(folder, progress=False)
    return trainer.train_supervised(cfg, task or ContainsWord(), cb, **options)


def rows_without_times(run):
    return [row | dict.fromkeys(VARIES) for row in read_rows(run / "metrics.csv", "updates")]


class Watch(Callback):
    """Remembers what it sees of a run."""

    def __init__(self):
        self.seen = []

    def on_log(self, state):
        self.seen.append((state.progress, state.total, state.units))


@pytest.fixture(scope="module")
def callbacks():
    """One of ours, and one of Keras's with the logs that it gets."""
    epochs = []
    keras_callback = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda _, logs: epochs.append(logs)
    )
    return Watch(), keras_callback, epochs


@pytest.fixture(scope="module")
def whole(tmp_path_factory, callbacks):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return train(folder, small_config(), callbacks[:2])


def test_a_run_learns_and_leaves_the_files_of_an_agents_run(whole):
    assert whole.stopped_by == "total_updates" and whole.summary["updates"] == 40
    assert whole.evaluation.metrics["accuracy"] >= 0.9
    files = {path.name for path in whole.run_dir.iterdir()}
    assert {"config.yaml", "metrics.csv", "result.json", "best.keras", "checkpoints"} <= files
    assert "learning_curve.png" in files and any(name.startswith("events.") for name in files)
    assert json.loads((whole.run_dir / "result.json").read_text()) == whole.summary
    rows = read_rows(whole.run_dir / "metrics.csv", "updates")
    assert [row["updates"] for row in rows] == ["10", "20", "30", "40"]
    assert [bool(row["evaluation_accuracy"]) for row in rows] == [False, True, False, True]
    assert "env_steps" not in rows[0] and float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_the_result_has_the_best_weights(whole):
    best = keras.models.load_model(whole.run_dir / "best.keras")
    for value, other in zip(best.get_weights(), whole.agent.network.get_weights(), strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize(
    ("at", "tables"), [(12, "host"), pytest.param(27, "device", marks=pytest.mark.learning)]
)
def test_ctrl_c_and_resume_give_the_run_that_was_not_interrupted(
    at, tables, whole, tmp_path, monkeypatch
):
    run, cfg, call = tmp_path / "run", small_config(tables=tables), SupervisedLoop.run

    def press(loop, *args):
        if loop.learner.updates >= at:
            signal.raise_signal(signal.SIGINT)
        return call(loop, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SupervisedLoop, "run", press)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt, match=r"saved in .* updates"):
                train(run, cfg)
        finally:
            signal.signal(signal.SIGINT, before)
    result = train(run, cfg, resume=True)
    assert rows_without_times(run) == rows_without_times(whole.run_dir)
    name = "checkpoints/ckpt-40"
    assert_same_tensors(str(run / name), str(whole.run_dir / name))
    assert result.evaluation == whole.evaluation


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path):
    with pytest.warns(UserWarning, match="loss is nan after 10 updates"):
        result = train(tmp_path / "run", small_config(learning_rate=1e30, max_grad_norm=None))
    assert result.stopped_by == "non_finite"


@pytest.mark.learning
def test_a_run_stops_early_where_evaluations_do_not_improve(tmp_path):
    class Same(ContainsWord):
        def evaluate(self, network):
            return {"accuracy": 0.5}

    cfg = small_config(early_stop_patience=2, evaluation_interval_updates=5)
    result = train(tmp_path / "run", cfg, task=Same())
    assert result.stopped_by == "early_stop" and result.summary["updates"] == 15


def test_callbacks_of_ours_and_of_keras_watch_a_run(whole, callbacks):
    watch, _, epochs = callbacks
    assert watch.seen == [(n, 40, "updates") for n in (10, 20, 30, 40)]
    assert [set(logs) >= {"loss", "evaluation_accuracy"} for logs in epochs] == [True, True]


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"best_metric": "f1"}, "gives accuracy, and best_metric is 'f1'"),
        ({"metric_names": ("accuracy", "f1")}, r"\['accuracy'\], and metric_names are"),
    ],
)
def test_a_metric_that_is_not_there_is_named(changes, complaint, tmp_path):
    task = ContainsWord()
    vars(task).update(changes)
    with pytest.raises(ValueError, match=complaint):
        train(tmp_path / "run", small_config(), task=task)


def test_epochs_say_how_long_a_run_is():
    cfg = dataclasses.replace(small_config(), total_updates=None, epochs=5)
    learner = Learner(ContainsWord(20), cfg)
    assert learner.total_updates == 5 * learner.rows.updates_per_epoch >= 5 * 3


@pytest.mark.learning
def test_a_run_with_xla_and_half_precision_learns(tmp_path):
    parts = {"batch_size": 4, "gradient_accumulation": 2}
    cfg = small_config(xla=True, precision="mixed_float16", num_buckets=1, **parts)
    result = train(tmp_path / "run", cfg)
    assert result.evaluation.metrics["accuracy"] >= 0.9


def fail_above(monkeypatch, most):
    """Make programs with more than `most` rows in one gradient fail, as XLA does."""
    whole = ContainsWord.loss

    def loss(self, network, batch, cfg):
        if batch["label"].shape[0] > most:
            text = "Out of memory while trying to allocate 9 GiB."
            raise tf.errors.ResourceExhaustedError(None, None, text)
        return whole(self, network, batch, cfg)

    monkeypatch.setattr(ContainsWord, "loss", loss)


def test_parts_of_a_batch_shrink_until_they_fit(tmp_path, monkeypatch):
    expected = train(tmp_path / "small", small_config(batch_size=2, gradient_accumulation=4))
    fail_above(monkeypatch, 2)
    networks = []

    class Watched(ContainsWord):
        def evaluate(self, network):
            networks.append(network)
            return super().evaluate(network)

    task = Watched()
    task.name = ContainsWord.name
    with pytest.warns(UserWarning, match="out of memory"):
        result = train(tmp_path / "run", small_config(on_oom="shrink"), task=task)
    rungs = [
        "batch_size 8 -> 4, gradient_accumulation 1 -> 2",
        "batch_size 4 -> 2, gradient_accumulation 2 -> 4",
    ]
    found = [{"fault": "out_of_memory", "updates": 0, "change": rung} for rung in rungs]
    assert result.summary["faults"] == found and "faults" not in expected.summary
    saved = SavedRun.existing(tmp_path / "run").read_config().settings
    assert (saved["batch_size"], saved["gradient_accumulation"]) == (2, 4)
    assert all(network is result.agent.network for network in networks)  # a task may keep it
    assert result.evaluation == expected.evaluation
    assert result.summary["memory"]["process_memory_mb"] > 50


@pytest.mark.learning
def test_then_texts_get_shorter_until_they_fit(tmp_path, monkeypatch):
    whole, seen = ContainsWord.loss, []

    def loss(self, network, batch, cfg):
        seen.append(tuple(batch["tokens"].shape))
        if seen[-1][1] > 40:
            raise tf.errors.ResourceExhaustedError(None, None, "Out of memory while trying to")
        return whole(self, network, batch, cfg)

    monkeypatch.setattr(ContainsWord, "loss", loss)
    task = ContainsWord()
    task.tokens = Ragged.of(np.resize(row, 150) for row in np.split(*task.tokens)[1:-1])
    task.labels = task.labels[: len(task.tokens.lengths)]
    settings = dataclasses.asdict(small_config(on_oom="shrink", batch_size=2, total_updates=4))
    cfg = ClassifierConfig(**{**settings, "algorithm": "classifier"}, max_length=140)
    with pytest.warns(UserWarning, match="out of memory"):
        result = train(tmp_path / "run", cfg, task=task)
    rungs = ["batch_size 2 -> 1, gradient_accumulation 1 -> 2", "max_length 140 -> 70"]
    rungs += ["max_length 70 -> 35"]
    assert [fault["change"] for fault in result.summary["faults"]] == rungs
    assert seen[-1] == (1, 35) and result.summary["updates"] == 4
    assert SavedRun.existing(tmp_path / "run").read_config().settings["max_length"] == 35


@pytest.mark.parametrize(
    ("cfg", "name", "lengths"),
    [
        (ClassifierConfig(max_length=65), "max_length", [32]),
        (RewriterConfig(max_source_length=512), "max_source_length", [256, 128, 64, 32]),
        # of the context: 469, 234, 117, 58
        (RankerConfig(max_length=512), "max_length", [277, 160, 101]),
    ],
)
def test_texts_are_halved_as_long_as_enough_is_left(cfg, name, lengths):
    found = []
    while cfg := cfg.in_shorter_texts():
        found.append(getattr(cfg, name))
    assert found == lengths
    assert SupervisedConfig().in_shorter_texts() is None


def test_without_leave_to_shrink_one_line_says_what_to_do(tmp_path, monkeypatch):
    fail_above(monkeypatch, 2)
    with pytest.raises(OutOfMemory, match=r"with 8 rows at once .* shrink, or lower batch_size"):
        train(tmp_path / "run", small_config())


@pytest.mark.learning
def test_a_loss_that_is_not_a_number_halves_the_rate(tmp_path, monkeypatch):
    class Spoiled(ContainsWord):
        def loss(self, network, batch, cfg):
            loss, metrics = super().loss(network, batch, cfg)
            return loss * (math.nan if cfg.learning_rate > 1e-2 else 1.0), metrics

    task = Spoiled()
    task.name = ContainsWord.name
    with pytest.warns(UserWarning, match="training goes on from the newest checkpoint"):
        result = train(tmp_path / "run", small_config(on_nan="restart"), task=task)
    change = ["learning_rate 0.03 -> 0.015", "learning_rate 0.015 -> 0.0075"]
    assert [fault["change"] for fault in result.summary["faults"]] == change
    assert [fault["updates"] for fault in result.summary["faults"]] == [10, 10]
    assert result.stopped_by == "total_updates" and result.evaluation.metrics["accuracy"] > 0.5
    assert max(row["learning_rate"] for row in result.history) <= 0.0075


@pytest.mark.learning
def test_the_task_of_the_page_on_text_models_learns(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "training_text_models.md").read_text(
        encoding="utf-8"
    )
    (block,) = PYTHON_BLOCK.findall(page)
    exec(compile(block, "training_text_models.md", "exec"), namespace := {"__name__": "__main__"})
    # Without pairs of words, the best guess of half of the scores is 0: 0.5 would be explained.
    assert namespace["result"].summary["evaluation"]["explained"] > 0.9
    assert (tmp_path / "runs" / "reviews" / "best.keras").is_file()
