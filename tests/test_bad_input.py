"""Every row of docs/bad_input.md that the command line can show: exit status and one line."""

import pytest

import cli

TRAIN = ["train", "dqn", "--env", "CartPole-v1"]


def complaint(argv, capsys):
    """The one line on standard error of a command that must exit with status 2."""
    assert cli.main([str(argument) for argument in argv]) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert captured.out == "" and len(lines) == 1 and lines[0].startswith("kytolly: "), captured
    return lines[0]


@pytest.mark.parametrize(
    "argv, words",
    [
        (["train", "dqnn", "--env", "CartPole-v1"], "'dqnn' is no algorithm; there are dqn, ddqn"),
        (["train", "dqn"], "--env is missing"),
        (["train", "dqn", "--env", "CartPole-v9"], "CartPole-v"),
        (["train", "dqn", "--env", "CartPol-v1"], "CartPole"),
        ([*TRAIN, "--learning-rat", "0.1"], "Did you mean --learning-rate?"),
        ([*TRAIN, "--learning-rate", "fast"], "learning_rate is 'fast', expected a finite number"),
        ([*TRAIN, "--learning-rate", "-1"], "learning_rate is -1.0, expected above 0"),
        ([*TRAIN, "--num-envs", "0"], "num_envs is 0, expected at least 1"),
        ([*TRAIN, "--warmup-env-steps", "10"], "warmup_env_steps (10) is below batch_size"),
        ([*TRAIN, "--device", "gpu:7"], "device is 'gpu:7', and TensorFlow sees"),
        ([*TRAIN, "--replay-capacity", "1000000000000"], "rows would fit"),
        ([*TRAIN, "--config", "missing.yaml"], "missing.yaml cannot be read"),
        ([*TRAIN, "--resume", "nowhere"], "nowhere is no run"),
        (
            ["train", "dqn", "--env", "LunarLander-v3", "--loop", "device"],
            "not exist as tensor code",
        ),
        (["train", "dqn", "--env", "Pendulum-v1"], "Box"),
        (["evaluate", "nowhere"], "nowhere is no run"),
        (["evaluate", "nowhere", "--episodes", "0"], "expected a whole number above 0"),
        (["fly"], "invalid choice: 'fly'"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_status_2(argv, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in complaint(argv, capsys)
    assert not list(tmp_path.iterdir())  # nothing half made is left behind


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "holds nothing"),
        (b"\x00\xff\xfe binary", "is not YAML text"),
        (b"learning_rat: 1", "Did you mean 'learning_rate'?"),
        (b"learning_rate: [1]", "learning_rate is [1], expected a finite number"),
    ],
)
def test_a_bad_configuration_file_is_named(content, words, capsys, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    assert words in complaint([*TRAIN, "--config", path], capsys)


def test_a_log_folder_that_exists_is_refused_and_left_alone(capsys, tmp_path):
    (tmp_path / "result.json").write_text("precious")
    assert "exists and is not empty" in complaint([*TRAIN, "--log-dir", tmp_path], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert (tmp_path / "result.json").read_text() == "precious"


def test_a_log_folder_that_cannot_be_written_is_refused(capsys, tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert "cannot be written" in complaint([*TRAIN, "--log-dir", file / "run"], capsys)


def test_another_keras_backend_is_refused(tmp_path):
    import os
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, cli.__file__, *TRAIN, "--log-dir", tmp_path / "r"],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "KERAS_BACKEND" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_python_that_is_too_old_is_refused(monkeypatch, capsys):
    import runpy
    import sys

    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(cli.__file__)
    assert stop.value.code == 2
    assert "Python 3.9 was found, 3.10 to 3.13 is expected" in capsys.readouterr().err
