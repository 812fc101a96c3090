"""An environment of the user's own module, with arguments and wrappers, on the command line."""

import json
import sys

import pytest
import yaml

from kytolly.command.entry import main
from tests.helpers.user_module import MODULE

SHORT = (
    "--total-env-steps 24 --batch-size 4 --hidden-units 4 --replay-capacity 500 --no-xla "
    "--warmup-env-steps 16 --train-interval-env-steps 8 --updates-per-interval 1 "
    "--evaluation-episodes 2 --final-evaluation-episodes 2"
).split()
ENV = "--env own_line:Line-v0 --env-kwargs length=4 --env-kwargs pay=0.5 --wrapper own_line:Twice"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("warnings.showwarning", lambda *_, **__: None)
    (tmp_path / "own_line.py").write_text(MODULE)
    return tmp_path


def answer(capsys, *words):
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def error(capsys, *words):
    assert main(list(words)) == 2
    return capsys.readouterr().err


def test_evaluate_and_resume_make_the_same_environment(here, capsys):
    made = answer(capsys, *f"train dqn {ENV} --log-dir a".split(), *SHORT)
    assert made["environment"] == "own_line:Line-v0"
    assert made["evaluation"]["return_mean"] == 4.0  # 4 steps, each 0.5, twice
    settings = yaml.safe_load((here / "a/config.yaml").read_text())["settings"]
    assert settings["env_kwargs"] == {"length": 4, "pay": 0.5}
    assert settings["wrappers"] == ["own_line:Twice"]

    for words in ("evaluate a", "train dqn --resume a --total-env-steps 32"):
        assert "own_line:Line-v0" in error(capsys, *words.split())
        assert "--wrapper own_line:Twice" in error(
            capsys, *words.split(), "--env", "own_line:Line-v0"
        )
        assert answer(capsys, *words.split(), "--trust")["evaluation"]["return_mean"] == 4.0
    other = "evaluate a --env own_line:Line-v0 --wrapper own_line:Twice --env-kwargs length=2"
    assert answer(capsys, *other.split())["evaluation"]["return_mean"] == 2.0
    found = error(capsys, *"train dqn --env own_line:Line-v0 --config a/config.yaml".split())
    assert "names wrappers" in found


def test_a_wrapper_takes_plain_arguments(here, capsys):
    env = ["--env", "own_line:Line-v0", "--wrapper", "own_line:Twice(3, added=0.5)"]
    made = answer(capsys, "train", "dqn", *env, "--log-dir", "a", *SHORT)
    assert made["evaluation"]["return_mean"] == 3 * 3.5
    assert "--wrapper 'own_line:Twice(3, added=0.5)'" in error(capsys, "evaluate", "a", *env[:2])
    assert answer(capsys, "evaluate", "a", "--trust")["evaluation"]["return_mean"] == 3 * 3.5


def test_what_is_missing_or_misspelled_is_said_in_one_line(here, capsys):
    train = ["train", "dqn", *SHORT]
    found = error(capsys, *train, "--env", "my_lines:Line-v0")
    assert f"neither my_lines.py in {here}" in found and "pip install" not in found
    for words, expected in {
        "--wrapper own_line:Thrice": "expected module:Class",
        "--wrapper no_such_file:Twice": "no_such_file.py",
        "--wrapper no_such_file:Twice({1:2})": "no_such_file.py",
        "--wrapper own_line:Twice(size=": "expected plain values, as in",
        "--wrapper own_line:Twice(print())": "expected plain values, as in",
        "--wrapper own_line:Twice(3).unwrapped": "expected plain values, as in",
        "--wrapper own_line:Twice(**{'added':1})": "an argument has no name",
        "--wrapper own_line:Twice(size=3)": "what stands in parentheses",
        "--env-kwargs length": "as in size=8",
        "--env-kwargs=--": "'--' was found",
        "--wrapper=--": "'--' was found",
        "--log-dir=--": "'--' was found",
        "--env-kwargs length=1 --env-kwargs length=2": "length is given twice",
        "--env-kwargs length=[": "is not YAML",
        "--env-kwargs height=1": "height",
    }.items():
        found = error(capsys, *train, "--env", "own_line:Line-v0", *words.split())
        assert expected in found and len(found.splitlines()) == 1, found


def test_check_env_takes_them_too(here, capsys):
    found = answer(capsys, *"check-env own_line:Line-v0 --steps 20 --env-kwargs length=2".split())
    assert found["ok"]
