import dataclasses
import math

import numpy as np
import pytest

from kytolly.callback.csv_log import CSVLog
from kytolly.record.metrics_file import read_rows
from tests.helpers.states import make_state, metrics_row

HEADER = (
    "env_steps,updates,episodes,wall_seconds,loss,grad_norm,learning_rate,"
    "episode_return,episode_length,env_steps_per_second,updates_per_second,td_error,q_mean,epsilon,"
    "evaluation_return_mean,evaluation_return_std,evaluation_length_mean\n"
)


def log_rows(run_dir, steps, *, start=0, evaluate=(), **others):
    log = CSVLog()
    log.on_train_begin(make_state(run_dir, start))
    for env_steps in steps:
        state = make_state(
            run_dir, env_steps, metrics=metrics_row(**others), wall_seconds=env_steps
        )
        log.on_log(state)
        if env_steps in evaluate:
            log.on_evaluation(make_state(run_dir, env_steps, evaluation_return=float(env_steps)))
    log.on_train_end(make_state(run_dir, max(steps, default=start)))
    return log


def column(run_dir, name):
    return [row[name] for row in read_rows(run_dir / "metrics.csv")]


def test_a_row_is_on_disk_at_once_and_the_evaluation_completes_it(tmp_path):
    log, path = CSVLog(), tmp_path / "metrics.csv"
    log.on_train_begin(make_state(tmp_path))
    state = make_state(tmp_path, 100, metrics=metrics_row(), wall_seconds=2.5, episodes=4)
    log.on_log(state)
    row = "100,100,4,2.5,0.5,1,0.001,20,20,100,100,0.25,3,0.1,"
    assert path.read_text() == HEADER + row + ",,\n"
    log.on_evaluation(make_state(tmp_path, 100, evaluation_return=57.25))
    assert path.read_text() == HEADER + row + "57.25,1.5,20\n"
    log.on_log(dataclasses.replace(state, env_steps=200))
    assert column(tmp_path, "env_steps") == ["100", "200"]
    assert column(tmp_path, "evaluation_return_mean") == ["57.25", ""]


def test_an_evaluation_without_a_row_of_its_env_step_makes_one(tmp_path):
    log = log_rows(tmp_path, [100])
    log.on_evaluation(make_state(tmp_path, 120, evaluation_return=7.0))
    log.on_evaluation(make_state(tmp_path, 120, evaluation_return=1234.5))
    log.on_evaluation(make_state(tmp_path, 120, evaluation_return=8.0))  # shorter than the last
    assert column(tmp_path, "env_steps") == ["100", "120"]
    assert column(tmp_path, "evaluation_return_mean") == ["", "8"]
    assert column(tmp_path, "loss") == ["0.5", ""]
    assert (tmp_path / "metrics.csv").read_text().endswith(",8,1.5,20\n")


def test_numpy_reads_the_file_with_metrics_that_are_not_finite(tmp_path):
    log_rows(tmp_path, [100, 200], loss=math.nan, episode_return=math.inf)
    table = np.genfromtxt(tmp_path / "metrics.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(table["loss"], [math.nan, math.nan])
    np.testing.assert_array_equal(table["episode_return"], [math.inf, math.inf])


def test_a_new_metric_gets_a_column_and_earlier_rows_stay(tmp_path):
    log = log_rows(tmp_path, [100, 200], evaluate=[200])
    log.on_log(make_state(tmp_path, 300, metrics=metrics_row(entropy=0.75)))
    log.on_evaluation(make_state(tmp_path, 300, evaluation_return=9.0))
    assert column(tmp_path, "entropy") == ["", "", "0.75"]
    assert column(tmp_path, "evaluation_return_mean") == ["", "200", "9"]
    # A resumed run keeps the column.
    log_rows(tmp_path, [400], start=300)
    assert column(tmp_path, "entropy") == ["", "", "0.75", ""]


def test_a_resumed_run_drops_what_came_after_its_checkpoint_and_goes_on(tmp_path):
    log_rows(tmp_path, [100, 200, 300, 400], evaluate=[200, 400])
    log_rows(tmp_path, [250, 350], start=200)
    assert column(tmp_path, "env_steps") == ["100", "200", "250", "350"]
    assert column(tmp_path, "evaluation_return_mean") == ["", "200", "", ""]


@pytest.mark.parametrize("characters", [1, 2, 20])  # the last cell would read 2, not 20
def test_a_line_that_was_cut_off_is_dropped(tmp_path, characters):
    log_rows(tmp_path, [100, 200, 300], evaluate=[300])
    path = tmp_path / "metrics.csv"
    path.write_text(path.read_text()[:-characters])
    log_rows(tmp_path, [400], start=300)
    assert column(tmp_path, "env_steps") == ["100", "200", "400"]


def test_a_fresh_run_keeps_nothing(tmp_path):
    log_rows(tmp_path, [100, 200])
    log_rows(tmp_path, [50], start=0)
    assert column(tmp_path, "env_steps") == ["50"]


def test_an_end_without_a_beginning_writes_nothing(tmp_path):
    CSVLog().on_train_end(make_state(tmp_path))
    assert not list(tmp_path.iterdir())
