import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cli

ROOT = Path(__file__).parent.parent
SHORT = (
    "--total-env-steps 300 --batch-size 8 --hidden-units 16 --replay-capacity 500 "
    "--warmup-env-steps 50 --train-interval-env-steps 10 --updates-per-interval 2 "
    "--evaluation-episodes 3 --final-evaluation-episodes 4"
).split()


def kytolly(*arguments, cwd, **options):
    return subprocess.run(
        [sys.executable, ROOT / "cli.py", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def trained(folder):
    (folder / "settings.yaml").write_text("seed: 5\nbatch_size: 16\n")
    return kytolly(
        *"train dqn --env CartPole-v1 --log-dir a --json --config settings.yaml".split(),
        *SHORT,
        cwd=folder,
    )


def test_train_prints_one_json_object_last_and_the_rest_elsewhere(trained):
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)  # nothing else is on standard output
    assert result["run_dir"] == "a" and result["stopped_by"] == "total_env_steps"
    assert result["seed"] == 5  # from the file
    assert "evaluation return" in trained.stderr  # progress


def test_a_flag_wins_over_the_file(trained, folder):
    text = (folder / "a" / "config.yaml").read_text()
    assert "batch_size: 8" in text and "seed: 5" in text


def test_evaluate_prints_the_same_return_as_training_did(trained, folder):
    done = kytolly("evaluate", "a", "--episodes", 4, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluation"] == json.loads(trained.stdout)["evaluation"]


def test_a_run_is_resumed(trained, folder):
    done = kytolly("train", "dqn", "--resume", "a", "--total-env-steps", 400, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps"] == 400


def test_ctrl_c_saves_the_run_and_exits_130(folder):
    process = subprocess.Popen(
        [sys.executable, ROOT / "cli.py", "train", "dqn", "--env", "CartPole-v1"]
        + ["--log-dir", "b", *SHORT, "--total-env-steps", "100000000"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 120
    while not list(folder.glob("b/events*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "kytolly train dqn --resume b" in errors and "Traceback" not in errors
    assert list(folder.glob("b/checkpoints/*.index"))


def test_every_field_is_a_flag_with_help_and_unit(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "--learning-rate" in text and "--total-env-steps" in text and "--reward-threshold" in text
    )
    assert "length of training, over all environment copies [env steps; default 50000]" in text
