"""Runs that are killed at random moments, by another process, end as runs that never were."""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.random_kills import RUNS, VARIANTS
from tests.record.same_run import assert_same_run

ROOT = Path(__file__).parents[2]
KILLS, SEED = 25, 7


def killed_runs(folder, name, kills):
    """What each kill interrupted, by the folder of the run."""
    script = "from tests.record.random_kills import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, folder, name, str(kills), str(SEED)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "kills.json").read_text())


@pytest.mark.learning
@pytest.mark.parametrize("name", [name for name in RUNS if name not in VARIANTS])
def test_runs_that_are_killed_at_any_time_end_as_those_that_never_were(tmp_path, name, capsys):
    report = killed_runs(tmp_path, name, KILLS)
    assert sum(map(len, report.values())) == KILLS
    moments = collections.Counter(phase for phases in report.values() for phase in phases)
    for run in report:
        assert_same_run(tmp_path / run, tmp_path / "whole")
    with capsys.disabled():
        print(f"\n{name}: {KILLS} kills in {len(report)} runs, all equal; {dict(moments)}")


@pytest.mark.learning
@pytest.mark.parametrize("name", VARIANTS)
def test_every_part_of_a_host_run_is_saved(tmp_path, name):
    report = killed_runs(tmp_path, name, 2)
    for run in report:
        assert_same_run(tmp_path / run, tmp_path / "whole")
