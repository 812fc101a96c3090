import math
import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kytolly import DQNConfig, Trainer
from kytolly.callback.base import Callback, notify
from kytolly.callback.custom_metrics import between
from kytolly.record.metrics_file import read_rows
from tests.helpers.states import SMALL, Adds, make_state, metrics_row


def scalars(run_dir, tag):
    events = EventAccumulator(str(run_dir)).Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


class Counts(Callback):
    """Adds at every log, from the second on, and at every evaluation."""

    def __init__(self):
        self.logs = 0

    def on_log(self, state):
        self.logs += 1
        if self.logs > 1:
            state.metrics["my/logs"] = np.int64(self.logs)

    def on_evaluation(self, state):
        state.metrics["score_squared"] = tf.constant(state.evaluation.return_mean**2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    trainer = Trainer(tmp_path_factory.mktemp("own") / "run", progress=False)
    cfg = DQNConfig(**SMALL)
    trainer.train(cfg, "CartPole-v1", [Counts()])
    return trainer.train(
        DQNConfig(**{**SMALL, "total_env_steps": 600}), "CartPole-v1", [Counts()], resume=True
    )


def test_a_callbacks_metrics_are_in_the_csv_file_late_ones_and_those_of_evaluations_too(run):
    rows = read_rows(run.run_dir / "metrics.csv")
    assert [row["my/logs"] for row in rows] == ["", "2", "3", "4", "", "2"]
    squares = [row["score_squared"] for row in rows]
    assert [bool(cell) for cell in squares] == [False, True] * 3
    for row in rows[1::2]:
        assert float(row["score_squared"]) == pytest.approx(
            float(row["evaluation_return_mean"]) ** 2, rel=1e-5
        )


def test_they_are_in_tensorboard_once_and_in_the_history(run):
    logs = scalars(run.run_dir, "my/logs")
    assert [value for _, value in logs] == [2, 3, 4, 2]
    assert len(scalars(run.run_dir, "train/score_squared")) == 3
    assert [row.get("my/logs") for row in run.history] == [None, 2, 3, 4, None, 2]
    assert math.isclose(
        run.history[-1]["score_squared"],
        run.history[-1]["evaluation_return_mean"] ** 2,
        rel_tol=1e-5,
    )


@pytest.mark.learning
def test_they_are_on_the_progress_line(tmp_path, capsys):
    Trainer(tmp_path / "run").train(
        DQNConfig(**{**SMALL, "total_env_steps": 200}), "CartPole-v1", [Counts()]
    )
    assert "my/logs 2" in capsys.readouterr().err


def call(own, row, hooks=("on_log",)):
    """The row after the hooks, and what was said."""
    callbacks, added = between([own])
    state = make_state(None, 100, metrics=dict(row), evaluation_return=1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):  # a row after another
            for hook in hooks:
                notify(callbacks, hook, state, {})
    return state.metrics, dict(added), [str(one.message) for one in said]


@pytest.mark.parametrize(
    ("value", "found"),
    [("0.5", "is str '0.5', expected a number"), (None, "NoneType"), (np.zeros(3), "ndarray")],
)
def test_what_is_no_number_is_left_out_with_one_warning(value, found):
    row, added, said = call(Adds({"mine": value, "good": True}), metrics_row())
    assert row == metrics_row(good=1.0) and added == {"good": 1.0}
    assert len(said) == 1 and "'mine'" in said[0] and found in said[0]


@pytest.mark.parametrize("name", ["env_steps", "evaluation_return_mean", "", 3])
def test_a_name_of_another_column_is_left_out_with_one_warning(name):
    row, _, said = call(Adds({name: 1.0}), metrics_row())
    assert row == metrics_row() and len(said) == 1 and repr(name) in said[0]


def test_a_metric_of_the_run_keeps_its_value():
    row, _, said = call(Adds({"loss": -1.0}), metrics_row(episode_return=math.nan))
    assert row["loss"] == 0.5 and math.isnan(row["episode_return"])
    assert len(said) == 1 and "keeps the run's value" in said[0]


def test_what_comes_after_the_row_is_written_is_said_to_be_lost():
    hooks = ("on_log", "on_evaluation", "on_interval_end")
    row, _, said = call(Adds(on_interval_end={"late": 1.0}), metrics_row(), hooks)
    assert row == metrics_row() and len(said) == 1 and "is lost" in said[0]


def test_a_metric_may_change_at_the_evaluation():
    own = Adds({"mine": 1.0}, {"mine": 2.0})
    row, added, said = call(own, metrics_row(), ("on_log", "on_evaluation"))
    assert row["mine"] == added["mine"] == 2.0 and not said


def test_a_logger_sees_what_callbacks_after_it_add():
    class Logger(Callback):
        writes = "a file"

        def on_log(self, state):
            self.seen = dict(state.metrics)

    logger = Logger()
    callbacks, _ = between([logger, Adds({"mine": 1.0})])
    notify(callbacks, "on_log", make_state(None, 100, metrics=metrics_row()), {})
    assert logger.seen["mine"] == 1.0


def test_a_callback_that_raises_loses_no_row_of_another(tmp_path):
    class Raises(Callback):
        def on_log(self, state):
            if state.env_steps >= 200:
                raise RuntimeError("a mistake")

    trainer = Trainer(tmp_path / "run", progress=False)
    with pytest.raises(RuntimeError, match="a mistake"):
        trainer.train(DQNConfig(**SMALL), "CartPole-v1", [Raises()])
    assert len(read_rows(tmp_path / "run" / "metrics.csv")) == 2
