"""Runs of earlier versions, which lie beside this file, play as they did.

Training goes on where their checkpoints can be read: from 0.2.
"""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml

from kytolly import load
from kytolly.callback.base import Callback
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


@pytest.fixture
def pqn(tmp_path):
    """A run of PQN from before its network lost weights that no output needed."""
    return shutil.copytree(OLD_RUNS / "pqn", tmp_path / "pqn")


class FirstVectors(Callback):
    """Keeps the weights, and the optimizer's moments, with which training begins."""

    def on_train_begin(self, state):
        policy = state.trackables["agent"].policy
        vectors = [policy.weights.vector, *policy.optimizer.variables]
        self.found = [each.numpy() for each in vectors if len(each.shape) == 1]


def test_dead_weights_of_an_old_run_are_dropped_and_no_others(pqn):
    reader = tf.train.load_checkpoint(pqn / "checkpoints" / "ckpt-640")
    names = sorted(reader.get_variable_to_shape_map())
    listed = {int(name.split("/")[2]): name for name in names if name.startswith("keras_variables")}
    saved = [reader.get_tensor(listed[index]) for index in range(17)]
    # 3 statistics; 4 dead of 6 x 8 + 8 + 8 x 6 + 6 = 110 numbers; the head's 2, of 14; 8 that live.
    live = [*saved[:3], *saved[9:], *saved[7:9]]
    for found, expected in zip(load(pqn, "last").network.get_weights(), live, strict=True):
        np.testing.assert_array_equal(found, expected)

    cfg = {**yaml.safe_load((pqn / "config.yaml").read_text())["settings"], "total_env_steps": 960}
    first = FirstVectors()
    trainer = Trainer(pqn, progress=False)
    result = trainer.train(cfg, "CartPole-v1", [first], resume=True)
    vectors = ["weights/vector", "optimizer/_variables/2", "optimizer/_variables/3"]
    for found, name in zip(first.found, vectors, strict=True):
        old = reader.get_tensor(f"agent/policy/{name}/.ATTRIBUTES/VARIABLE_VALUE")
        assert old.shape == (246,)
        np.testing.assert_array_equal(found, np.concatenate([old[124:], old[110:124]]))
    assert result.summary["parameters"] == 136 and result.summary["updates"] == 120


def test_the_best_weights_of_an_old_run_play_as_they_did(pqn):
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)[:2]
    expected = [[0.593684, -0.814609], [0.521972, -0.764104]]  # of the code that trained it
    np.testing.assert_allclose(load(pqn).q_values(obs), expected, rtol=1e-4, atol=1e-5)


def test_other_weights_than_the_dead_ones_are_not_dropped(pqn):
    cfg = yaml.safe_load((pqn / "config.yaml").read_text())["settings"]
    for hidden_units in ((8,), (8, 6, 6), (6, 8)):
        with pytest.raises(ValueError, match="another configuration"):
            Trainer(pqn, progress=False).train(
                {**cfg, "hidden_units": hidden_units}, "CartPole-v1", resume=True
            )
