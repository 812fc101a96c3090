import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kytolly.config.tuned import tuned_settings

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "kytolly.command.entry"]
SHORT = (
    "--total-env-steps 300 --batch-size 8 --hidden-units 16 --replay-capacity 500 "
    "--warmup-env-steps 50 --train-interval-env-steps 10 --updates-per-interval 2 "
    "--evaluation-episodes 3 --final-evaluation-episodes 4"
).split()


def kytolly(*arguments, cwd, **options):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
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


def start_and_stop(folder, run, number, *arguments):
    """A process that gets a signal once its loop runs; its exit status and standard error."""
    process = subprocess.Popen(
        [*COMMAND, "train", *arguments, "--log-dir", run, "--total-env-steps", "100000000"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 300
    while not list(folder.glob(f"{run}/events*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_saves_the_run_and_decides_the_exit_status(folder, number, status):
    run = f"stopped-{status}"
    short = [*SHORT, "--no-xla"]
    found, errors = start_and_stop(folder, run, number, "dqn", "--env", "CartPole-v1", *short)
    assert found == status
    assert f"kytolly train dqn --resume {run}" in errors and "Traceback" not in errors
    assert list(folder.glob(f"{run}/checkpoints/*.index"))


def test_a_run_of_an_early_version_can_be_played_but_not_resumed(trained, folder):
    shutil.copytree(folder / "a", folder / "early")
    path = folder / "early" / "config.yaml"
    path.write_text(re.sub(r"kytolly: .*", "kytolly: 0.1.0", path.read_text()))
    done = kytolly("evaluate", "early", "--episodes", 2, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = kytolly("train", "dqn", "--resume", "early", cwd=folder)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "written by kytolly 0.1.0, expected 0.2 or newer" in done.stderr


@pytest.fixture(scope="module")
def trained_ppo(folder):
    (folder / "ppo.yaml").write_text("seed: 5\nnum_envs: 2\n")
    return kytolly(
        *"train ppo --env Pendulum-v1 --log-dir p --json --config ppo.yaml".split(),
        *"--total-env-steps 300 --num-envs 3 --rollout-steps 25 --num-minibatches 3".split(),
        *"--epochs 2 --hidden-units 8 --no-xla --normalize-observations".split(),
        *"--evaluation-episodes 2 --final-evaluation-episodes 3".split(),
        cwd=folder,
    )


def test_train_ppo_prints_one_json_object_last(trained_ppo, folder):
    assert trained_ppo.returncode == 0, trained_ppo.stderr
    result = json.loads(trained_ppo.stdout)
    assert (result["algorithm"], result["environment"]) == ("ppo", "Pendulum-v1")
    # rollouts of 75 env steps: 4, with 2 epochs of 3 minibatches; a third pass is not made
    assert (result["env_steps"], result["updates"], result["seed"]) == (300, 24, 5)
    text = (folder / "p" / "config.yaml").read_text()
    assert "num_envs: 3" in text  # a flag wins over the file
    assert f"gamma: {tuned_settings('ppo', 'Pendulum-v1')['gamma']}\n" in text


def test_evaluate_plays_a_ppo_run_again(trained_ppo, folder):
    done = kytolly("evaluate", "p", "--episodes", 3, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["evaluation"] == json.loads(trained_ppo.stdout)["evaluation"]


def test_a_run_is_resumed_by_its_own_algorithm_only(trained_ppo, folder):
    done = kytolly("train", "dqn", "--resume", "p", cwd=folder)
    assert done.returncode == 2 and "ALGO is dqn, and the run to resume is ppo" in done.stderr
    done = kytolly("train", "ppo", "--resume", "p", "--total-env-steps", 375, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps"] == 375


def test_ctrl_c_saves_a_ppo_run_and_exits_130(folder):
    short = "ppo --env CartPole-v1 --hidden-units 8 --no-xla".split()
    status, errors = start_and_stop(folder, "q", signal.SIGINT, *short)
    assert status == 130
    assert "kytolly train ppo --resume q" in errors and "Traceback" not in errors
    assert list(folder.glob("q/checkpoints/*.index"))
