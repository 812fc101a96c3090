"""The start is timed from before the process to its best weights and to its end."""

import os
import types

import pytest

from kytolly.benchmarks import start, suite
from kytolly.benchmarks.suite import Options

BEGIN = 1_000.0  # what the clock says when a process starts


@pytest.fixture
def fake_training(monkeypatch):
    """A function that replaces training: best weights after 7 s, the end after 12 s."""
    clock = types.SimpleNamespace(now=BEGIN)
    times = types.SimpleNamespace(time=lambda: clock.now, perf_counter=lambda: clock.now)
    monkeypatch.setattr(start, "time", times)
    environs = []

    def replace(stopped_by):
        def run_module(module, arguments, core=None, environ=None):
            run_dir = arguments[arguments.index("--log-dir") + 1]
            os.makedirs(run_dir)
            path = os.path.join(run_dir, "best.keras")
            with open(path, "w") as file:
                file.write("x")
            os.utime(path, (clock.now + 7.0, clock.now + 7.0))
            clock.now += 12.0
            environs.append(environ)
            return {
                "stopped_by": stopped_by,
                "compile_seconds": 1.0,
                "env_steps": 5,
                "evaluation": {"return_mean": 480.0},
            }

        monkeypatch.setattr(suite, "run_module", run_module)
        return environs

    return replace


def test_solved_is_when_the_best_weights_were_written(fake_training):
    environs = fake_training("reward_threshold")
    watch = suite.Watch(suite.progress_display())
    report = start.start_table(Options(seeds=3), watch)
    assert (report.data["solved"], report.data["exited"]) == (7.0, 12.0)
    assert [run["seed"] for run in report.data["warm"]] == [1, 2, 3]
    assert len(report.rows) == 5  # an empty cache, three seeds, their median
    assert "kytolly-start-" in environs[0]["KYTOLLY_COMPILE_CACHE"]


def test_a_start_that_does_not_solve_it_is_endless(fake_training, tmp_path):
    fake_training("total_env_steps")
    failed = start.time_start(tmp_path, 1, start.FLAGS)
    assert (failed["solved"], failed["exited"]) == (None, None)
    assert start.median([3.0, None, 1.0]) == 3.0  # of 1, 3 and endless
    assert start.median([None, None, 1.0]) is None
