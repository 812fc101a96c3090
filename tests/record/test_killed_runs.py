"""A run that is killed at any file operation and resumed ends as one that was never stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.same_run import assert_same_run

ROOT = Path(__file__).parents[2]
KINDS = ("dqn-device", "ppo-device", "dqn-host", "ppo-host")
SLOW = [pytest.param(kind, marks=pytest.mark.learning) for kind in KINDS if kind != "dqn-host"]


def train_all(folder, kind, *words):
    script = str(Path(__file__).with_name("killed_runs.py"))
    done = subprocess.run(
        [sys.executable, script, folder, kind, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


@pytest.fixture(scope="module", params=["dqn-host", *SLOW])
def home(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    train_all(folder, request.param, "twice")
    return folder


def test_a_run_that_is_killed_twice_ends_as_one_that_was_never_stopped(home):
    assert_same_run(home / "killed-twice", home / "whole")


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
    count = train_all(tmp_path, kind)
    assert count > 72
    for point in range(1, count + 1):
        assert_same_run(tmp_path / f"killed-{point}", tmp_path / "whole")
