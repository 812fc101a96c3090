import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from kytolly.command import entry, sweep, train, train_pbt, train_seeds
from kytolly.command.result import print_result
from kytolly.config.ppo import PPOConfig
from kytolly.config.tuned import tuned_settings
from tests.helpers.commands import SHORT, SHORT_PPO, kytolly

ROOT = Path(__file__).parents[2]
# Whoever starts the tests may ignore signals (nohup, `&`); whoever starts a command does not.
COMMAND = (
    "import signal; from kytolly.command.entry import entry\n"
    "for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler); entry()"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def trained(folder):
    (folder / "settings.yaml").write_text("seed: 5\nbatch_size: 16\n")
    given = "train dqn --env CartPole-v1 --log-dir a --json --config settings.yaml".split()
    return kytolly(*given, *SHORT, cwd=folder)


def test_train_prints_one_json_object_last_and_the_rest_elsewhere(trained):
    assert trained.status == 0, trained.errors
    result = json.loads(trained.out)  # nothing else is on standard output
    assert result["run_dir"] == "a" and result["stopped_by"] == "total_env_steps"
    assert result["seed"] == 5  # from the file
    assert "evaluation return" in trained.errors  # progress


def test_a_flag_wins_over_the_file(trained, folder):
    text = (folder / "a" / "config.yaml").read_text()
    assert "batch_size: 8" in text and "seed: 5" in text


def test_evaluate_prints_the_same_return_as_training_did(trained, folder):
    done = kytolly("evaluate", "a", "--episodes", 3, "--json", cwd=folder)
    assert done.status == 0, done.errors
    found = json.loads(done.out)
    assert found["evaluation"] == json.loads(trained.out)["evaluation"]
    # A quarter of three episodes is less than one: nothing is left out.
    assert found["return_iqm"] == pytest.approx(found["evaluation"]["return_mean"])
    assert (found["weights"], found["run_dir"]) == ("best", "a")


def test_a_reader_sees_whose_weights_they_are_their_mean_and_their_interquartile_mean(capsys):
    evaluation = {"episodes": 4, "return_mean": 30.0, "return_std": 39.2, "length_mean": 9.0}
    cut = ", cut by max_wall_seconds"
    for more, words, end in (
        ({"return_iqm": 12.5}, ", interquartile mean 12.5,", ""),
        ({"evaluation_cut": True}, "", cut),
        ({}, "", ""),
    ):
        print_result({"evaluation": evaluation, "run_dir": "a", **more}, as_json=False)
        line = f"Return of the best weights: 30.0 ± 39.2{words} over 4 greedy episodes{end}"
        assert capsys.readouterr().out.splitlines() == [line, "Run: a"]


def test_a_run_without_an_update_says_that_it_learned_nothing(capsys):
    evaluation = {"episodes": 4, "return_mean": 30.0, "return_std": 39.2, "length_mean": 9.0}
    run = {"algorithm": "dqn", "environment": "E", "loop": "host", "seed": 0, "run_dir": "a"}
    run |= {"env_steps": 5, "wall_seconds": 1.0, "env_steps_per_second": 5.0, "stopped_by": "time"}
    for updates in (0, 1):
        print_result({"evaluation": evaluation, **run, "updates": updates}, as_json=False)
        assert ("Nothing was learned" in capsys.readouterr().out) is (updates == 0)


def test_a_run_is_resumed(trained, folder):
    done = kytolly("train", "dqn", "--resume", "a", "--total-env-steps", 250, "--json", cwd=folder)
    assert done.status == 0, done.errors
    assert json.loads(done.out)["env_steps"] == 250


@pytest.fixture(scope="module")
def trained_ppo(folder):
    (folder / "ppo.yaml").write_text("seed: 5\nnum_envs: 2\n")
    given = "train ppo --env Pendulum-v1 --log-dir p --json --config ppo.yaml".split()
    return kytolly(*given, *SHORT_PPO, "--normalize-observations", cwd=folder)


@pytest.mark.learning
def test_train_ppo_prints_one_json_object_last(trained_ppo, folder):
    assert trained_ppo.status == 0, trained_ppo.errors
    result = json.loads(trained_ppo.out)
    assert (result["algorithm"], result["environment"]) == ("ppo", "Pendulum-v1")
    # rollouts of 75 env steps: 2, with 2 epochs of 3 minibatches
    assert (result["env_steps"], result["updates"], result["seed"]) == (150, 12, 5)
    text = (folder / "p" / "config.yaml").read_text()
    assert "num_envs: 3" in text  # a flag wins over the file
    assert f"gamma: {tuned_settings('ppo', 'Pendulum-v1')['gamma']}\n" in text
    (line,) = [one for one in trained_ppo.errors.splitlines() if "tuned settings" in one]
    assert line.startswith("kytolly: tuned settings for Pendulum-v1: ")
    assert ", learning_rate 0.001, " in line and "gamma 0.95" in line
    assert "num_envs" not in line  # of which the user has given others


def test_tuned_settings_are_demanded_or_left_out():
    def config(words):
        return train.given_config(entry.parse(["train", *words.split()]))[0]

    tuned = tuned_settings("ppo", "Pendulum-v1")
    assert config("ppo --env Pendulum-v1").gamma == tuned["gamma"] != PPOConfig().gamma
    assert config("ppo --env Pendulum-v1 --tuned") == config("ppo --env Pendulum-v1")
    assert config("ppo --env Pendulum-v1 --no-tuned") == PPOConfig()
    assert config("ppo --env Other-v1 --no-tuned") == config("ppo --env Other-v1") == PPOConfig()
    assert config("dqn --env CartPole-v1 --tuned --evaluation-episodes 7").evaluation_episodes == 7


@pytest.mark.parametrize(
    "algorithm, name, old", [("dqn", "target_sync_updates", 200), ("ppo", "epochs", 4)]
)
def test_the_defaults_of_an_earlier_version_are_taken_where_nothing_else_is_given(
    algorithm, name, old
):
    def config(words):
        given = ["train", algorithm, "--env", "Other-v1", *words.split()]
        return getattr(train.given_config(entry.parse(given))[0], name)

    assert config("--defaults 0.2") == old != config("")
    assert config(f"--defaults 0.2 --{name.replace('_', '-')} 7") == 7
    with pytest.raises(ValueError, match="no version with other defaults"):
        config("--defaults 0.1")


def test_evaluate_plays_a_ppo_run_again(trained_ppo, folder):
    done = kytolly("evaluate", "p", "--episodes", 2, "--json", cwd=folder)
    assert done.status == 0, done.errors
    assert json.loads(done.out)["evaluation"] == json.loads(trained_ppo.out)["evaluation"]


def test_a_run_is_resumed_by_its_own_algorithm_only(trained_ppo, folder):
    done = kytolly("train", "dqn", "--resume", "p", cwd=folder)
    assert done.status == 2 and "ALGO is dqn, and the run to resume is ppo" in done.errors
    done = kytolly("train", "ppo", "--resume", "p", "--total-env-steps", 225, "--json", cwd=folder)
    assert done.status == 0, done.errors
    assert json.loads(done.out)["env_steps"] == 225


def test_a_signal_saves_the_run_and_decides_the_exit_status(folder):
    """SIGINT, and a run of DQN: tests/loop/test_stopped_host.py; statuses: test_exits.py."""
    run = folder / "stopped"
    words = ["train", "ppo", "--env", "CartPole-v1", "--log-dir", run.name, *SHORT_PPO[2:]]
    child = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "--total-env-steps", "100000000"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        while not list(run.glob("events*")) and child.poll() is None:  # until its loop runs
            time.sleep(0.1)
        time.sleep(0.5)
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=300)
    finally:
        child.kill()
    assert child.returncode == 143, errors
    assert f"kytolly train ppo --resume {run.name}" in errors and "Traceback" not in errors
    assert list(run.glob("checkpoints/*.index"))


@pytest.mark.parametrize("module", [sweep, train_pbt, train_seeds])
@pytest.mark.parametrize("environment, end", [("mine:Maze-v0", " --trust`."), ("Maze-v0", "`.")])
def test_the_command_that_continues_many_runs_may_import_what_they_name(module, environment, end):
    folder = types.SimpleNamespace(path=Path("runs/a")) if module is train_pbt else Path("runs/a")
    many = types.SimpleNamespace(
        folder=folder, config=PPOConfig(), environment=environment, seeds=[0, 1]
    )
    words = module.continue_words(many)
    assert "--resume runs/a" in words and words.endswith(end)
    assert ("--trust" in words) is ("--trust" in end)
