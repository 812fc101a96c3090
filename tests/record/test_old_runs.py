"""Runs of version 0.1.0, which lie beside this file, play as they did; training starts anew."""

import json
import shutil
import warnings
from pathlib import Path

import pytest

from kytolly.command import entry
from kytolly.trainer import Trainer

OLD_RUNS = Path(__file__).parent / "old_runs"


@pytest.fixture(params=["dqn", "ppo"])
def run(request, tmp_path):
    return shutil.copytree(OLD_RUNS / request.param, tmp_path / request.param)


@pytest.fixture(autouse=True)
def settings_of_the_process(monkeypatch):
    """The command sets these; other tests get them back."""
    monkeypatch.setenv("KYTOLLY_XLA", "on")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


def test_an_old_run_is_evaluated_with_the_same_result(run, capsys):
    saved = json.loads((run / "result.json").read_text())["evaluation"]
    seed = str(3 + 1_000_003)  # how 0.1.0 made the last evaluation's seed from the run's
    argv = ["evaluate", str(run), "--episodes", str(saved["episodes"]), "--seed", seed, "--json"]
    assert entry.main(argv) == 0
    assert json.loads(capsys.readouterr().out)["evaluation"] == pytest.approx(saved)


def test_an_old_run_is_not_resumed(run, capsys):
    before = sorted(path.name for path in run.iterdir())
    argv = ["train", run.name, "--resume", str(run), "--total-env-steps", "1000"]
    assert entry.main(argv) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "was written by kytolly 0.1.0, expected 0.2 or newer" in line
    with pytest.raises(ValueError, match=r"0\.1\.0, expected"):
        Trainer(run, progress=False).train({"algorithm": run.name}, "CartPole-v1", resume=True)
    assert sorted(path.name for path in run.iterdir()) == before
