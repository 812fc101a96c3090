"""Commands in a folder whose files have the names of modules: none of them is imported.

A module of that folder is imported where the user names it, and finds its neighbors.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kytolly.command.environment_options import import_from_here
from kytolly.deployment.zoo import run_path
from tests.helpers.user_module import MODULE
from tests.helpers.written_runs import HEAD

ROOT = Path(__file__).parents[2]
# As pip writes it, but for several commands: Python looks for modules where this file is.
COMMAND = """
import sys
from kytolly.command.entry import entry
if __name__ == "__main__":
    for words in sys.argv[1:]:
        sys.argv[1:] = words.split()
        try:
            entry()
        except SystemExit as ended:
            if ended.code:
                raise
"""
ABSENT = "IPython cupy gym jax lightgbm mlflow pandas pynvml ray sitecustomize torch triton wandb"
LEAVE_MARK = "open({folder!r} + '/' + __name__, 'w').close()\n"
SHORT = (
    "--total-env-steps 24 --batch-size 4 --hidden-units 4 --replay-capacity 500 --no-xla "
    "--warmup-env-steps 16 --train-interval-env-steps 8 --updates-per-interval 1 --loop host "
    "--evaluation-episodes 2 --final-evaluation-episodes 2 --async-envs --num-envs 2"
)
COMMANDS = {  # each list in one process, so that TensorFlow is imported once
    "files": [
        "doctor",
        "evaluate . --episodes 2",
        "record . --episodes 1 --out {new}/video.gif",
        "export . --format onnx --out {new}/agent.onnx --episodes 1",
        "plot run --out {new}/picture.png",
        "check-env CartPole-v1 --steps 10",
    ],
    "seeds": [f"train dqn --env CartPole-v1 {SHORT} --seeds 0 --log-dir {{new}}/runs"],
    "tune": [f"tune dqn --env CartPole-v1 {SHORT} --trials 1 --study {{new}}/study.db"],
}


def module_names():
    installed = importlib.metadata.packages_distributions()
    names = {*sys.stdlib_module_names, *installed, *ABSENT.split(), "kytolly", "pygame"}
    return sorted(name for name in names if name.isidentifier())


def run_in(folder, commands, tmp_path):
    command = tmp_path / "bin" / "kytolly"
    command.parent.mkdir(exist_ok=True)
    command.write_text(COMMAND)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, command, *commands],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
    )


def marks_in(tmp_path):
    return sorted(mark.name for mark in (tmp_path / "marks").iterdir())


@pytest.fixture
def stranger(tmp_path):
    return write_stranger(tmp_path)


def write_stranger(tmp_path):
    """A run, another one in it, and modules that leave a mark when they are imported."""
    folder, marks = tmp_path / "stranger", tmp_path / "marks"
    shutil.copytree(run_path("zoo:DQN/CartPole-v1"), folder)
    (folder / "run").mkdir()
    shutil.copy(folder / "config.yaml", folder / "run")
    (folder / "run/metrics.csv").write_text(f"{HEAD}\n1,1,1,1,1,2.0\n2,2,2,2,2,3.0\n")
    marks.mkdir()
    for name in module_names():
        (folder / f"{name}.py").write_text(LEAVE_MARK.format(folder=str(marks)))
    (folder / "matplotlibrc").write_text("text.usetex: True\n")  # plots would run LaTeX
    return folder


@pytest.mark.parametrize(
    "name",
    ["files", *(pytest.param(name, marks=pytest.mark.learning) for name in ("seeds", "tune"))],
)
def test_no_module_of_the_current_folder_is_imported(name, stranger, tmp_path):
    (new := tmp_path / "new").mkdir()
    check_no_import(stranger, [words.format(new=new) for words in COMMANDS[name]], tmp_path)


def check_no_import(folder, commands, tmp_path):
    """Commands work in a folder of `write_stranger`, and import none of its modules."""
    done = run_in(folder, commands, tmp_path)
    assert marks_in(tmp_path) == []
    assert done.returncode == 0, done.stderr


@pytest.mark.learning
def test_a_module_that_the_user_names_is_imported_with_its_neighbors(stranger, tmp_path):
    for name in module_names():
        if importlib.util.find_spec(name) is None:  # no such module: ours would count
            (stranger / f"{name}.py").unlink()
    (stranger / "own_line.py").write_text(f"import neighbor\n{MODULE}")
    mark = LEAVE_MARK.format(folder=str(tmp_path / "marks"))
    (stranger / "neighbor.py").write_text(mark)
    new = tmp_path / "new"
    train = f"train dqn --env own_line:Line-v0 --wrapper own_line:Twice {SHORT} --log-dir {new}"
    done = run_in(stranger, [train, f"evaluate {new} --trust --episodes 2"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert marks_in(tmp_path) == ["neighbor"]


def test_a_name_that_means_no_module_opens_no_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    import_from_here("CartPole-v1", "gymnasium.wrappers:FlattenObservation", "__main__:Env-v0")
    assert sys.path == before
    import_from_here("no_such_module:Env-v0")
    assert sys.path == [*before, str(tmp_path)]
