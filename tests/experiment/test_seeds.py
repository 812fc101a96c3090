"""`kytolly train --seeds --apart`: which processes run, what is made of them, how it ends."""

import argparse
import json
import signal
from pathlib import Path

import pytest
import yaml

from kytolly.command.entry import main
from kytolly.command.options import seed_list
from kytolly.machine.hardware import usable_cores
from tests.helpers.cases import learning
from tests.helpers.commands import SHORT_PPO, kytolly
from tests.helpers.processes import Processes

TRAIN = ["train", "ppo", "--env", "CartPole-v1", "--log-dir", "g"]
APART = [*TRAIN, "--apart"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-3", [0, 1, 2, 3]), ("0,3,5", [0, 3, 5]), ("7", [7]), ("9,1-2", [9, 1, 2])],
)
def test_seeds_are_ranges_and_lists(text, seeds):
    assert seed_list(text) == seeds


@pytest.mark.parametrize("text", ["", "3-1", "1,1", "0-2,2", "a", "-1", "1-", "0-1000", "1.5"])
def test_no_other_text_is_seeds(text):
    with pytest.raises(argparse.ArgumentTypeError, match="was found, expected"):
        seed_list(text)


def test_each_seed_has_a_process_and_the_group_a_result(monkeypatch, capsys):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)  # what is set is left as it is
    processes = Processes(monkeypatch, lambda _, seed: [10.0, 100.0 + seed, 50.0 + seed])
    words = [*APART, "--seeds", "0-3", "--jobs", "2", "--gamma", "0.9", "--json"]
    assert main(words) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert processes.most_at_once == 2 and [p.seed for p in processes.started] == [0, 1, 2, 3]
    assert all(p.settings["gamma"] == 0.9 for p in processes.started)
    threads = str(max(1, usable_cores() // 2))
    assert {p.env["TF_NUM_INTRAOP_THREADS"] for p in processes.started} == {threads}
    assert [run["best"] for run in found["runs"]] == [100, 101, 102, 103]
    assert found["last"]["returns"] == [50, 51, 52, 53]
    # Of four the lowest and the highest go: (101 + 102) / 2.
    assert found["best"]["interquartile_mean"] == 101.5
    assert json.loads(Path("g/result.json").read_text())["best"] == found["best"]
    assert Path("g/seeds.png").read_bytes()[:4] == b"\x89PNG" and found["plot"] == "g/seeds.png"
    assert "seed 2: return 102.0" in printed.err and "(4 of 4)" in printed.err
    assert main(["plot", "g", "--group", "--json"]) == 0  # the folder stands for its seeds
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["last"]["values"] == [50, 51, 52, 53]


@pytest.mark.parametrize("words, told", [((), 1), (("--no-tuned",), 0)])
def test_tuned_settings_are_told_once_for_all_seeds(words, told, monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda _, seed: [5.0])
    assert main([*APART, "--seeds", "0-1", *words]) == 0
    assert capsys.readouterr().err.count("tuned settings for CartPole-v1") == told
    # The group's file has all settings already.
    assert all("--no-tuned" in process.words for process in processes.started)


def test_what_nobody_gave_is_left_to_each_run(monkeypatch):
    """Which knows the environment: forces ask for one lambda, and images for one step."""
    processes = Processes(monkeypatch, lambda _, seed: [5.0])
    assert main([*APART, "--seeds", "0", "--no-tuned", "--num-envs", "8"]) == 0
    (process,) = processes.started
    assert process.settings["num_envs"] == 8
    assert not {"gae_lambda_value", "rollout_steps", "num_minibatches"} & set(process.settings)


def test_the_others_go_on_when_one_fails_and_the_status_says_so(monkeypatch, capsys):
    Processes(monkeypatch, lambda _, seed: [5.0, "it broke"] if seed == 1 else [5.0, 7.0])
    assert main([*APART, "--seeds", "0-2", "--json"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [run.get("failed") for run in found["runs"]] == [None, "it broke", None]
    assert found["best"]["returns"] == [7, 7] and "Seed 1: it broke" in printed.err


def test_what_is_wrong_for_every_seed_is_said_once_and_leaves_nothing(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda _, seed: ["no such environment"])
    assert main([*APART, "--seeds", "0-9", "--jobs", "1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "kytolly: no such environment"
    assert len(processes.started) == 1 and not Path("g").exists()


def test_ctrl_c_stops_all_and_the_group_is_continued(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0, 2.0, 3.0])
    processes.interrupt_at = 12  # the first two are done, the next two have begun
    assert main([*APART, "--seeds", "0-4", "--jobs", "2"]) == 130
    errors = capsys.readouterr().err
    done, stopped = processes.started[:2], processes.started[2:]
    assert [p.returncode for p in done] == [0, 0] and not any(p.signals for p in done)
    assert [(p.signals, p.waits) for p in stopped] == [([signal.SIGTERM], 1)] * 2
    assert "2 of 5 seeds are done" in errors
    assert "`kytolly train ppo --resume g --seeds 0,1,2,3,4`" in errors

    processes = Processes(monkeypatch, lambda *_: [4.0])
    assert main(["train", "ppo", "--resume", "g", "--seeds", "0-4", "--json"]) == 0
    assert [(p.run_dir.name, p.resumed) for p in processes.started] == [
        ("seed-2", True),
        ("seed-3", True),
        ("seed-4", False),
    ]
    assert json.loads(capsys.readouterr().out)["best"]["returns"] == [3, 3, 4, 4, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TRAIN, "--seeds", "0-1", "--seed", "3"], "--seed and --seeds are both given"),
        ([*TRAIN, "--seeds", "0-1", "--profile"], "--profile times one run"),
        ([*TRAIN, "--jobs", "2"], "--jobs is for several runs"),
        ([*TRAIN, "--together"], "--together is for several runs"),
        ([*APART, "--seeds", "0-1", "--together"], "not allowed with argument"),
        ([*TRAIN, "--seeds", "0-1", "--together", "--loop", "host"], "loop is host"),
        (
            ["train", "ppo", "--env", "Cartpol-v1", "--seeds", "0-1", "--together"],
            "unknown environ",
        ),
        ([*TRAIN, "--seeds", "0-1", "--together", "--on-nan", "restart"], "on_nan is restart"),
        (["train", "ppo", "--resume", "h", "--seeds", "0", "--together"], "Leave --together out"),
        (["train", "ppo", "--seeds", "0-1"], "--env is missing"),
        (["train", "ppo", "--resume", "x", "--seeds", "0"], "x has no group.yaml"),
        (["train", "dqn", "--resume", "h", "--seeds", "0"], "the group in h is ppo"),
        (["train", "ppo", "--resume", "h", "--seeds", "0", "--gamma", "1"], "Leave --gamma out"),
        (["train", "ppo", "--resume", "h", "--seeds", "0", "--init", "h"], "Leave --init out"),
        (["train", "ppo", "--resume", "h", "--seeds", "0", "--tuned"], "Leave --tuned out"),
        ([*TRAIN[:-1], "h", "--seeds", "0"], "h exists and is not empty"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, message, tmp_path, monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    (tmp_path / "h").mkdir()
    group = {"environment": "CartPole-v1", "settings": {"algorithm": "ppo"}}
    (tmp_path / "h" / "group.yaml").write_text(yaml.safe_dump(group))
    assert main(words) == 2 and not processes.started
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


@pytest.mark.parametrize("seeds", [[3], learning([3, 5])])
def test_real_seeds_train(seeds, tmp_path):
    """A process each; with the seeds apart, so that their runs differ."""
    words = [*APART, "--json"]
    words += ["--seeds", ",".join(map(str, seeds))]
    done = kytolly(*words, *SHORT_PPO, cwd=tmp_path)
    assert done.status == 0, done.errors
    found = json.loads(done.out)
    assert [(run["seed"], run["env_steps"]) for run in found["runs"]] == [
        (seed, 150) for seed in seeds
    ]
    for seed in seeds:
        text = (tmp_path / "g" / f"seed-{seed}" / "config.yaml").read_text()
        assert f"seed: {seed}\n" in text and "rollout_steps: 25\n" in text
