import json
import os
import re
from pathlib import Path

import pytest
import yaml

import kytolly
from kytolly.command.options import path
from kytolly.config.dqn import DQNConfig
from kytolly.deployment.trained_run import read_run
from kytolly.record.run_folder import RunFolder
from kytolly.record.saved_run import SavedRun, read_result
from kytolly.trainer import Trainer


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "dqn")
    folder.write_config(DQNConfig(), "CartPole-v1", "device")
    return folder


@pytest.mark.parametrize("name", ["a\0b", os.fsdecode(b"a\xff"), "/".join(["x" * 200] * 19)])
def test_a_path_that_training_could_not_use_is_refused_before_a_folder_is_made(name, tmp_path):
    with pytest.raises(ValueError, match="cannot be written"):
        RunFolder.create(tmp_path / name, "dqn")
    assert not list(tmp_path.iterdir())


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Trainer("~/run").log_dir == tmp_path / "run" == Path(path("~/run"))
    made = RunFolder.create(tmp_path / "run", "dqn")
    made.write_config(DQNConfig(), "CartPole-v1", "device")
    assert made.path == SavedRun.existing("~/run").path
    assert Trainer("~nobody at all/run").log_dir == Path("~nobody at all/run")


@pytest.mark.parametrize("count, words", [(1, "seed-0."), (3, "seed-2."), (5, "and 2 more.")])
def test_a_folder_of_several_runs_names_them(count, words, tmp_path):
    for seed in range(count):
        made = RunFolder.create(tmp_path / f"seed-{seed}", "dqn")
        made.write_config(DQNConfig(), "CartPole-v1", "device")
    with pytest.raises(ValueError, match="no config") as caught:
        SavedRun.existing(tmp_path)
    assert f"one of those in it: {tmp_path / 'seed-0'}" in str(caught.value)
    assert str(caught.value).endswith(words)


def set_version(folder, version):
    path = folder.path / "config.yaml"
    text = path.read_text()
    path.write_text(re.sub(r"kytolly: .*", f"kytolly: {version}", text))


def test_a_run_names_the_version_that_wrote_it_and_can_be_resumed(folder):
    values = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert values["versions"]["kytolly"] == kytolly.__version__
    assert SavedRun.resumable(folder.path).path == folder.path


@pytest.mark.parametrize("version", ["0.2.0", "0.10.1", "1.0.0rc1"])
def test_later_versions_can_be_resumed(folder, version):
    set_version(folder, version)
    assert SavedRun.resumable(folder.path).path == folder.path


@pytest.mark.parametrize("version", ["0.1.0", "0.1.9", "not installed"])
def test_the_checkpoints_of_an_early_version_are_refused_in_one_line(folder, version):
    set_version(folder, version)
    with pytest.raises(ValueError) as error:
        SavedRun.resumable(folder.path)
    message = str(error.value)
    assert f"was written by kytolly {version}, expected 0.2 or newer" in message
    assert f"kytolly evaluate {folder.path}" in message and "start a new run" in message
    assert "\n" not in message
    assert (
        SavedRun.existing(folder.path).read_config().environment == "CartPole-v1"
    )  # can be played


def test_a_run_without_versions_is_refused(folder):
    path = folder.path / "config.yaml"
    values = yaml.safe_load(path.read_text())
    del values["versions"]
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=r"expected 0\.2 or newer"):
        SavedRun.resumable(folder.path)


def test_a_second_run_of_a_name_gets_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {RunFolder.create(None, "dqn").path.name for _ in range(3)}
    assert len(names) == 3


def test_a_folder_in_use_is_refused_and_left_alone(folder):
    before = (folder.path / "config.yaml").read_text()
    with pytest.raises(ValueError, match="exists and is not empty"):
        RunFolder.create(folder.path, "dqn")
    assert (folder.path / "config.yaml").read_text() == before


@pytest.mark.parametrize(
    "text, words",
    [
        ("settings: {seed: 1}", "lacks settings with an algorithm"),
        ("settings: {algorithm: dqn}", "lacks environment"),
    ],
)
def test_a_config_that_lacks_something_is_named(folder, text, words):
    (folder.path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=words):
        SavedRun(folder.path).read_config()


def test_an_environment_that_would_import_a_module_must_be_trusted(folder):
    run = SavedRun(folder.path)
    assert run.trusted_environment(run.read_config(), trust=False) == "CartPole-v1"
    folder.write_config(DQNConfig(), "evil.module:Env-v0", "host")
    with pytest.raises(ValueError, match="would import the Python module evil") as error:
        run.trusted_environment(run.read_config(), trust=False)
    assert "--trust" in str(error.value) and "\n" not in str(error.value)
    assert run.trusted_environment(run.read_config(), trust=True) == "evil.module:Env-v0"


NONSENSE = ["null", "[]", "3", '"a"', "NaN", "{", "", "[" * 100_000, '{"evaluation": null}']


@pytest.mark.parametrize("text", [*NONSENSE, '{"a": 1}'], ids=lambda text: text[:20])
def test_a_result_replaces_whatever_lies_there_and_nonsense_is_no_result(text, folder):
    (folder.path / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"result\.json cannot be read") as error:
        read_result(folder.path)
    assert "\n" not in str(error.value)
    folder.write_result({"evaluation": {"return_mean": 1.0}})
    assert json.loads((folder.path / "result.json").read_text()) == {
        "evaluation": {"return_mean": 1.0}
    }


@pytest.mark.parametrize("value", [None, 3, 0.5, True, [1], {"a": 1}, "a", [], [[]], {}, "x" * 999])
@pytest.mark.parametrize("name", ["environment", "loop", "parts", "versions", "spec", "init"])
def test_a_config_of_other_types_is_used_or_refused_in_one_line(name, value, folder):
    path = folder.path / "config.yaml"
    values = yaml.safe_load(path.read_text()) | {name: value}
    path.write_text(yaml.safe_dump(values))
    try:
        saved = SavedRun(folder.path).read_config()
    except ValueError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
    else:
        assert isinstance(saved.environment, str) and isinstance(saved.version, str)


@pytest.mark.parametrize("algorithm", [[1], {"a": 1}, 3, True, None, 1.5, "x" * 999, ""])
def test_an_algorithm_that_is_no_name_is_refused(algorithm, folder):
    path = folder.path / "config.yaml"
    values = yaml.safe_load(path.read_text())
    values["settings"]["algorithm"] = algorithm
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match="algorithm") as error:
        read_run(folder.path)
    assert "\n" not in str(error.value)
