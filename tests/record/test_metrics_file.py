import math
import os

import pytest

from kytolly.record.metrics_file import MetricsFile, csv_line, number_in, read_rows


def row(env_steps, **metrics):
    return {"env_steps": env_steps, "updates": 1, "episodes": 0, "wall_seconds": 2.5, **metrics}


@pytest.fixture
def file(tmp_path):
    file = MetricsFile(tmp_path)
    file.keep_rows(0)
    return file


def test_a_row_is_on_disk_at_once_and_can_be_replaced(file):
    file.append(row(100, loss=0.5))
    file.append(row(200, loss=1234.5))
    file.replace_last(row(200, loss=2.0))  # shorter
    assert [r["loss"] for r in read_rows(file.path)] == ["0.5", "2"]
    file.append(row(300, entropy=0.75))  # a column of its own, before those of the evaluation
    assert [r["entropy"] for r in read_rows(file.path)] == ["", "", "0.75"]
    assert file.columns[-4:-2] == ("entropy", "evaluation_return_mean")


def test_the_rows_of_a_resumed_run_end_at_its_checkpoint(file):
    for env_steps in (100, 200, 300):
        file.append(row(env_steps, wall_seconds=env_steps / 10))
    resumed = MetricsFile(file.path.parent)
    resumed.keep_rows(200)
    assert [r["env_steps"] for r in read_rows(file.path)] == ["100", "200"]
    MetricsFile(file.path.parent).keep_rows(0)
    assert read_rows(file.path) == []


def test_a_line_that_was_cut_off_is_no_row(file):
    file.append(row(100, evaluation_length_mean=20))
    file.append(row(200, evaluation_length_mean=20))
    file.path.write_text(file.path.read_text()[:-2])  # the last cell would read 2
    assert [r["env_steps"] for r in read_rows(file.path)] == ["100"]


def test_a_file_without_env_steps_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("name,value\na,1\n")
    with pytest.raises(ValueError, match="has no column env_steps"):
        MetricsFile(tmp_path).keep_rows(0)
    assert path.read_text() == "name,value\na,1\n"


def test_a_resumed_file_has_the_rows_of_the_checkpoint_and_the_last_as_it_was_then(file):
    for env_steps in (100, 200):
        file.append(row(env_steps, loss=1 / 3))
    before = file.path.read_bytes()
    file.replace_last(row(200, loss=1 / 3, evaluation_return_mean=7.0))
    file.append(row(200, loss=9.0))  # a second row of the same env step
    resumed = MetricsFile(file.path.parent)
    resumed.keep_rows(200, 2, row(200, loss=1 / 3))
    assert file.path.read_bytes() == before
    resumed.replace_last(row(200, evaluation_return_mean=8.0))
    assert [r["evaluation_return_mean"] for r in read_rows(file.path)] == ["", "8"]


def test_a_file_that_needs_no_change_is_left_alone(file):
    file.append(row(100, loss=1 / 3, entropy=0.5))
    os.utime(file.path, (1, 1))
    MetricsFile(file.path.parent).keep_rows(100, 1, row(100, loss=1 / 3, entropy=0.5))
    assert file.path.stat().st_mtime == 1


def test_rows_that_could_not_be_written_come_with_the_next(file):
    file.append(row(100))
    moved = file.path.rename(file.path.with_name("moved"))
    with pytest.raises(FileNotFoundError):
        file.append(row(200))
    moved.rename(file.path)
    file.append(row(300))
    assert [r["env_steps"] for r in read_rows(file.path)] == ["100", "200", "300"]


def test_a_cell_has_the_digits_of_float32():
    assert csv_line([1 / 3, 100, "a,b"]) == '0.3333333,100,"a,b"\n'
    assert number_in({"loss": "0.25"}, "loss") == 0.25
    assert math.isnan(number_in({"loss": ""}, "loss"))
