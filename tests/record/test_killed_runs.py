"""A run that is killed at any file operation and resumed ends as one that was never stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.algorithms import ALGORITHMS, part
from kytolly.record.checkpoint import read_manifest
from kytolly.record.metrics_file import read_rows

for algorithm in ALGORITHMS:  # Keras reads a class from a file only where its module is imported
    part(algorithm, "network")

ROOT = Path(__file__).parents[2]
KINDS = ("dqn-device", "ppo-device", "dqn-host", "ppo-host")
POINTS = (54,)  # `make test-all` tries every one
TIMES = {"wall_seconds", "env_steps_per_second", "updates_per_second", "compile_seconds"}


def train_all(folder, kind, points):
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("killed_runs.py")),
            folder,
            kind,
            *map(str, points),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


def without_times(values):
    if isinstance(values, dict):
        drop = TIMES | {"steady", "bytes", "run_dir"}
        return {name: without_times(v) for name, v in values.items() if name not in drop}
    return [without_times(v) for v in values] if isinstance(values, list) else values


def same(found, expected):
    """Equality in which NaN equals NaN."""
    return json.dumps(without_times(found)) == json.dumps(without_times(expected))


def points_in(run):
    """(step, tag, value) of everything in the event files, in their order."""
    return [
        (event.step, value.tag, value.simple_value if value.HasField("simple_value") else None)
        for path in sorted(run.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if not value.tag.startswith(("speed/", "memory/"))
    ]


def assert_same_run(run, whole):
    def names(path):
        files = (p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        return sorted(name for name in files if "events" not in name)

    assert names(run) == names(whole)
    for name in ("config.yaml", "learning_curve.png", "checkpoints/checkpoint"):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name
    rows, expected = read_rows(run / "metrics.csv"), read_rows(whole / "metrics.csv")
    assert without_times(rows) == without_times(expected)
    assert points_in(run) == points_in(whole)
    assert same(*(json.loads((p / "result.json").read_text()) for p in (run, whole)))
    best, expected = (keras.models.load_model(p / "best.keras") for p in (run, whole))
    assert type(best) is type(expected)
    best, expected = best.get_weights(), expected.get_weights()
    for value, other in zip(best, expected, strict=True):
        np.testing.assert_array_equal(value, other)
    for manifest in (whole / "checkpoints").glob("*.json"):
        found, expected = (str(p / "checkpoints" / manifest.stem) for p in (run, whole))
        assert same(read_manifest(found)[1], read_manifest(expected)[1])
        found, expected = tf.train.load_checkpoint(found), tf.train.load_checkpoint(expected)
        assert found.get_variable_to_shape_map() == expected.get_variable_to_shape_map()
        for key in expected.get_variable_to_shape_map():
            if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
                np.testing.assert_array_equal(found.get_tensor(key), expected.get_tensor(key), key)


@pytest.fixture(scope="module", params=KINDS)
def home(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    train_all(folder, request.param, POINTS)
    return folder


@pytest.mark.parametrize("name", [*(f"killed-{point}" for point in POINTS), "killed-twice"])
def test_a_killed_run_ends_as_one_that_was_never_stopped(home, name):
    assert_same_run(home / name, home / "whole")


def test_resuming_a_finished_run_changes_nothing(home):
    whole = home / "whole"
    files = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    times = json.loads((home / "times.json").read_text())
    lock = whole / ".lock"
    assert {str(path) for path, time in files.items() if times.get(str(path)) != time} <= {
        str(lock)
    }
    for path in files:
        assert (home / "before" / path.relative_to(whole)).read_bytes() == path.read_bytes(), path


@pytest.mark.learning
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_of_a_run_may_be_the_one_at_which_it_is_killed(tmp_path, kind):
    count = train_all(tmp_path, kind, ())
    assert count > 72
    for point in range(1, count + 1):
        assert_same_run(tmp_path / f"killed-{point}", tmp_path / "whole")
