"""`kytolly train --seeds --together`: the seeds of a training as members of populations."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from kytolly import PPOConfig, load
from kytolly.command.entry import main
from kytolly.experiment import together
from kytolly.experiment.members import reason_apart
from kytolly.experiment.together import default_parts, seeds_text
from kytolly.loop.turns import PopulationInTurns
from tests.helpers.commands import SHORT_PPO, kytolly
from tests.helpers.processes import Processes

TRAIN = ["train", "ppo", "--env", "CartPole-v1", "--json", "--seeds"]
SETTINGS = [*SHORT_PPO, "--checkpoint-interval-env-steps", "75", "--log-interval-env-steps", "75"]
TIMES = ("wall_seconds", "env_steps_per_second", "updates_per_second")


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """A group of two seeds, trained in one program, and what the command printed."""
    folder = tmp_path_factory.mktemp("together")
    done = kytolly(*TRAIN, "3,5", "--log-dir", "g", *SETTINGS, cwd=folder)
    assert done.status == 0, done.errors
    return folder / "g", done


def rows(run_dir):
    """The metrics of a run but for times and memory."""
    with open(run_dir / "metrics.csv") as file:
        return [
            {k: v for k, v in row.items() if k not in TIMES and "memory" not in k}
            for row in csv.DictReader(file)
        ]


def weights(run_dir):
    return [w.tolist() for w in load(run_dir).network.get_weights()]


def assert_same_runs(group, other):
    for run_dir in sorted(group.glob("seed-*")):
        assert rows(run_dir) == rows(other / run_dir.name)
        assert weights(run_dir) == weights(other / run_dir.name)


def test_a_group_in_one_program_has_the_files_and_the_table_of_one_in_processes(group):
    folder, done = group
    found = json.loads(done.out)
    assert [(run["seed"], run["env_steps"]) for run in found["runs"]] == [(3, 150), (5, 150)]
    assert json.loads((folder / "result.json").read_text())["best"] == found["best"]
    assert Path(folder / "seeds.png").read_bytes()[:4] == b"\x89PNG"
    assert yaml.safe_load((folder / "group.yaml").read_text())["together"] == [[3, 5]]
    assert "2 seeds to train together, in one program" in done.errors
    assert "2 members, 0 of 150 env steps each" in done.errors
    assert not (folder / "seed-3" / "learning_curve.png").exists()  # `kytolly plot` draws it


def test_other_commands_take_a_member_for_what_it_is_a_run(group):
    folder, _ = group
    one = kytolly("evaluate", "g/seed-3", "--episodes", "2", "--json", cwd=folder.parent)
    assert one.status == 0 and json.loads(one.out)["evaluation"]["episodes"] == 2
    assert kytolly("plot", "g/seed-3", "--out", "c.png", cwd=folder.parent).status == 0
    assert kytolly("plot", "g", "--group", "--out", "d.png", cwd=folder.parent).status == 0
    words = ["export", "g/seed-5", "--format", "saved_model", "--out", "m"]
    assert kytolly(*words, cwd=folder.parent).status == 0
    assert load(folder / "seed-5").act(np.zeros(4, np.float32)) in (0, 1)


def test_a_member_is_resumed_alone(group, tmp_path):
    shutil.copytree(group[0] / "seed-3", tmp_path / "r")
    words = ["train", "ppo", "--resume", "r", "--total-env-steps", "300", "--json"]
    done = kytolly(*words, cwd=tmp_path)
    assert done.status == 0 and json.loads(done.out)["env_steps"] == 300, done.errors


def test_an_interrupted_group_continues_to_the_same_numbers(group, tmp_path, monkeypatch):
    run, count, calls = PopulationInTurns.run_each, 0, 2  # of which the first only compiles

    def run_until(self, *arguments):
        nonlocal count
        count += 1
        if count > calls:
            raise KeyboardInterrupt
        return run(self, *arguments)

    monkeypatch.setattr(PopulationInTurns, "run_each", run_until)
    done = kytolly(*TRAIN, "3,5", "--log-dir", "g", *SETTINGS, cwd=tmp_path)
    assert done.status == 130 and "0 of 2 seeds are done" in done.errors
    assert "`kytolly train ppo --resume g --seeds 3,5`" in done.errors
    monkeypatch.undo()
    done = kytolly("train", "ppo", "--resume", "g", "--seeds", "3,5", cwd=tmp_path)
    assert done.status == 0, done.errors
    assert_same_runs(group[0], tmp_path / "g")


@pytest.mark.learning
def test_seeds_that_are_done_keep_their_rows_and_new_ones_are_added(group, tmp_path):
    done = kytolly(*TRAIN, "7", "--log-dir", "g", *SETTINGS, cwd=tmp_path)
    assert done.status == 0, done.errors
    before = (tmp_path / "g" / "seed-7" / "result.json").read_bytes()
    done = kytolly("train", "ppo", "--resume", "g", "--seeds", "7,8", "--json", cwd=tmp_path)
    assert done.status == 0, done.errors
    assert [run["seed"] for run in json.loads(done.out)["runs"]] == [7, 8]
    assert (tmp_path / "g" / "seed-7" / "result.json").read_bytes() == before
    assert yaml.safe_load((tmp_path / "g" / "group.yaml").read_text())["together"] == [[7], [8]]


def test_a_group_is_not_continued_in_another_way(group, capsys, monkeypatch):
    monkeypatch.chdir(group[0].parent)
    assert main(["train", "ppo", "--resume", "g", "--seeds", "3,5", "--apart"]) == 2
    assert "were trained together. Leave --apart out" in capsys.readouterr().err


def test_environments_of_the_host_stay_apart_and_one_line_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    processes = Processes(monkeypatch, lambda *_: [1.0])
    assert main(["train", "ppo", "--env", "FrozenLake-v1", "--log-dir", "g", "--seeds", "0-1"]) == 0
    assert len(processes.started) == 2
    assert "FrozenLake-v1 is no tensor code" in capsys.readouterr().err.splitlines()[0]


@pytest.mark.parametrize(
    ("seeds", "jobs", "cores", "sizes"),
    [(5, None, 2, [5]), (20, None, 2, [10, 10]), (20, None, 1, [20]), (5, 2, 2, [2, 3])]
    + [(1, 2, 2, [1])],
)
def test_many_seeds_are_two_populations(seeds, jobs, cores, sizes, monkeypatch):
    monkeypatch.setattr(together, "default_jobs", lambda: cores)
    parts = default_parts(PPOConfig(device="cpu"), range(seeds), jobs)
    assert [len(part) for part in parts] == sizes
    assert [seed for part in parts for seed in part] == list(range(seeds))


def test_seeds_have_a_short_text():
    assert [seeds_text(s) for s in ([3], [0, 1, 2], [0, 2])] == ["seed 3", "seeds 0-2", "seeds 0,2"]


@pytest.mark.learning
def test_two_processes_survive_a_kill(tmp_path):
    """One population in the process that is killed, one in its child: both go on as they were."""
    words = [*TRAIN, "0-2", "--jobs", "2", "--total-env-steps", "8000", "--log-dir"]
    words.insert(-1, "--checkpoint-interval-env-steps=1000")
    start = [sys.executable, "-m", "kytolly.command.entry"]
    subprocess.run([*start, *words, "whole"], cwd=tmp_path, check=True)
    process = subprocess.Popen([*start, *words, "killed"], cwd=tmp_path)
    while not all(
        any((tmp_path / "killed" / f"seed-{seed}" / "checkpoints").glob("ckpt-*.json"))
        for seed in range(3)
    ):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = ["train", "ppo", "--resume", "killed", "--seeds", "0-2"]
    subprocess.run([*start, *again], cwd=tmp_path, check=True)
    assert_same_runs(tmp_path / "whole", tmp_path / "killed")


def test_arguments_of_tensor_code_are_those_of_every_member(tmp_path):
    maze = ["train", "ppo", "--env", "kytolly/PassiveTMaze-v0", "--env-kwargs", "length=4"]
    done = kytolly(*maze, "--seeds", "0,1", "--log-dir", "g", *SETTINGS, cwd=tmp_path)
    assert done.status == 0 and "Train each" not in done.errors, done.errors
    alone = kytolly(*maze, "--seed", "1", "--log-dir", "alone", *SETTINGS, cwd=tmp_path)
    assert alone.status == 0, alone.errors
    assert rows(tmp_path / "g/seed-1") == rows(tmp_path / "alone")
    lengths = [row["evaluation_length_mean"] for row in rows(tmp_path / "g/seed-1")]
    assert {float(length) for length in lengths if length} == {5.0}  # the corridor and the turn
    saved = yaml.safe_load((tmp_path / "g/seed-1/config.yaml").read_text())
    assert saved["settings"]["env_kwargs"] == {"length": 4}


@pytest.mark.parametrize(
    "env, settings, reason",
    [
        ("kytolly/PassiveTMaze-v0", {"env_kwargs": {"length": 4}}, None),
        ("CartPole-v1", {"env_kwargs": {"sutton_barto_reward": True}}, "arguments of CartPole-v1"),
        ("CartPole-v1", {"wrappers": ["a:B"]}, "wrappers are for environments of the host"),
        ("LunarLander-v3", {}, "LunarLander-v3 is no tensor code"),
    ],
)
def test_what_one_program_cannot_hold_is_named(env, settings, reason):
    found = reason_apart(PPOConfig(**settings), env)
    assert found == reason or (reason and found.startswith(reason))
