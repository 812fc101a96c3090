"""`kytolly sweep`: combinations of settings, in populations and in processes."""

import argparse
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import yaml

from kytolly import PPOConfig, load
from kytolly.command import sweep as sweep_command
from kytolly.command.entry import main
from kytolly.command.sweep import setting_values, typed_value
from kytolly.experiment import sweep as sweep_module
from kytolly.experiment.cluster import files_of
from kytolly.experiment.processes import ChildRun
from kytolly.experiment.sweep import (
    Sweep,
    combinations,
    combined_configs,
    default_processes,
    dividing_settings,
    folder_names,
    program_groups,
    settings_label,
)
from kytolly.loop.turns import PopulationInTurns
from tests.helpers.commands import SHORT_PPO, as_cluster, kytolly
from tests.helpers.processes import Processes

SWEEP = ["sweep", "ppo", "--env", "CartPole-v1", "--log-dir", "s"]
HOST = ["sweep", "ppo", "--env", "FrozenLake-v1", "--log-dir", "s", "--set", "gamma=0.9,0.99"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("learning-rate=1e-4,3e-4", {"learning_rate": ["1e-4", "3e-4"]}),
        ("hidden_units=[64,64],[256]", {"hidden_units": ["[64,64]", "[256]"]}),
        ("network=auto", {"network": ["auto"]}),
    ],
)
def test_values_are_between_commas_that_are_in_no_brackets(text, values):
    assert setting_values(text) == values


@pytest.mark.parametrize("text", ["", "gamma", "gamma=", "gamma=1,,2", "=1"])
def test_other_texts_are_no_values(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a setting and its values"):
        setting_values(text)


def test_a_value_is_a_number_a_word_a_list_none_or_a_boolean_where_the_setting_is_one():
    texts = ["1e-4", "none", "yes", "[8,4]", "relu"]
    assert [typed_value(text, str) for text in texts] == [1e-4, None, "yes", [8, 4], "relu"]
    assert [typed_value(text, bool) for text in ("yes", "false")] == [True, False]


def test_folders_are_called_after_the_settings_or_numbered_where_that_is_no_name():
    values = {"learning_rate": [1e-3, 1e-5], "hidden_units": [[64, 64]], "double": [True]}
    assert folder_names(combinations(values)) == [
        "learning_rate=0.001,hidden_units=64x64,double=yes",
        "learning_rate=1e-05,hidden_units=64x64,double=yes",
    ]
    assert folder_names([{"tensorboard_tags": tag} for tag in "aA"]) == ["settings-1", "settings-2"]
    assert folder_names([{"tensorboard_tags": "a" * 300}]) == ["settings-1"]
    assert folder_names([{"../tags": "a/../b"}]) == ["..-tags=a-..-b"]


def make_sweep(tmp_path, values, seeds, jobs):
    plan = {"values": values, "seeds": list(range(seeds)), "together": True, "jobs": jobs}
    return Sweep.create(str(tmp_path / "s"), PPOConfig(), "CartPole-v1", plan, None, print)


def test_settings_of_one_program_are_one_population_others_are_groups(tmp_path):
    values = {"learning_rate": [1e-3, 1e-4], "epochs": [2, 4], "clip_range": [0.1, 0.2]}
    sweep = make_sweep(tmp_path, values, 3, 1)
    programs = program_groups(sweep.groups)
    assert [len(program) for program in programs] == [4, 4]
    assert dividing_settings(programs, values) == ["epochs"]
    assert [len(part) for part in sweep.parts] == [12, 12]


def test_a_number_that_may_be_none_divides_programs(tmp_path):
    values = {"entropy_coef": [None, 0.1, 0.2], "clip_range": [0.1, 0.2]}
    sweep = make_sweep(tmp_path, values, 1, 1)
    assert [len(part) for part in sweep.parts] == [2, 4]
    assert dividing_settings(program_groups(sweep.groups), values) == ["entropy_coef"]


@pytest.mark.parametrize(("jobs", "sizes"), [(1, [6]), (2, [3, 3]), (9, [1] * 6)])
def test_a_population_is_divided_between_processes(jobs, sizes, tmp_path):
    sweep = make_sweep(tmp_path, {"clip_range": [0.1, 0.2]}, 3, jobs)
    assert [len(part) for part in sweep.parts] == sizes
    members = [(group.folder.name, seed) for part in sweep.parts for group, seed in part]
    assert len(set(members)) == 6


@pytest.mark.parametrize(
    ("name", "seeds", "cores", "processes"),
    [("clip_range", 3, 2, 1), ("clip_range", 10, 2, 2), ("clip_range", 10, 1, 1)]
    + [("epochs", 1, 2, 2)],
)
def test_two_processes_where_both_have_enough_to_do(name, seeds, cores, processes, monkeypatch):
    monkeypatch.setattr(sweep_module, "default_jobs", lambda: cores)
    values = {"clip_range": [0.1, 0.2], "epochs": [2, 3]}
    configs = combined_configs(PPOConfig(device="cpu"), {name: values[name]})
    assert default_processes(configs, seeds) == processes


def test_settings_that_hang_on_a_varied_one_follow_it():
    configs = combined_configs(PPOConfig(), {"num_envs": [2, 8]})
    # Of 8 environments a rollout has 128 steps, of 2 as many rows: 512 steps.
    assert [cfg.rollout_steps for cfg in configs] == [PPOConfig(num_envs=2).rollout_steps, 128]


def test_host_environments_have_a_process_a_run_and_the_table_is_sorted(monkeypatch, capsys):
    scores = {0.9: 10.0, 0.99: 30.0}
    processes = Processes(monkeypatch, lambda words, seed: [gamma_score(words, scores) + seed])
    assert main([*HOST, "--seeds", "0-2", "--jobs", "2", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "FrozenLake-v1 is no tensor code" in printed.err.splitlines()[0]
    assert len(processes.started) == 6 and processes.most_at_once == 2
    assert [row["settings"] for row in found["settings"]] == [{"gamma": 0.99}, {"gamma": 0.9}]
    assert found["settings"][0]["best"]["returns"] == [30, 31, 32]
    assert found["settings"][0]["best"]["interquartile_mean"] == 31
    assert found["improvement"]["probability_of_improvement"] == 1.0  # 30 to 32 against 10 to 12
    assert "A run of gamma=0.99 is better than one of gamma=0.9 with probability 1.00" in (
        " ".join(printed.err.split())
    )
    assert json.loads(Path("s/result.json").read_text())["settings"] == found["settings"]
    assert Path("s/sweep.png").read_bytes()[:4] == b"\x89PNG"
    best = yaml.safe_load(Path("s/best.yaml").read_text())
    assert best["gamma"] == 0.99 and best["algorithm"] == "ppo" and "seed" not in best
    assert main(["plot", "s", "--group", "--json"]) == 0  # the folder stands for its runs
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert sorted(len(group["runs"]) for group in groups) == [3, 3]


def gamma_score(words, scores):
    file = Path(words[words.index("--config") + 1])
    return scores[yaml.safe_load(file.read_text())["settings"]["gamma"]]


def test_a_failed_run_is_named_and_a_sweep_completed_without_its_options(monkeypatch, capsys):
    Processes(monkeypatch, lambda _, seed: [5.0, "it broke"] if seed == 1 else [5.0])
    assert main([*HOST, "--seeds", "0-1", "--jobs", "1"]) == 1
    printed = capsys.readouterr()
    assert "gamma=0.99, seed 1: it broke" in printed.out
    assert "2 of 4 runs failed" in printed.err and "`kytolly sweep --resume s`" in printed.err
    processes = Processes(monkeypatch, lambda *_: [7.0])
    assert main(["sweep", "--resume", "s", "--json"]) == 0
    assert [(p.run_dir.parent.name, p.run_dir.name, p.resumed) for p in processes.started] == [
        ("gamma=0.9", "seed-1", True),
        ("gamma=0.99", "seed-1", True),
    ]
    rows = json.loads(capsys.readouterr().out)["settings"]
    assert [row["best"]["returns"] for row in rows] == [[5, 7], [5, 7]]
    assert main(["sweep", "--resume", "s", "--json"]) == 0 and len(processes.started) == 2


def test_ctrl_c_stops_all(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0, 2.0])
    processes.interrupt_at = 4
    assert main([*HOST, "--seeds", "0-1", "--jobs", "1"]) == 130
    errors = capsys.readouterr().err
    assert "1 of 4 runs are done" in errors and "`kytolly sweep --resume s`" in errors
    assert [process.returncode for process in processes.started] == [0, 143]


def test_what_is_wrong_for_every_run_is_said_once_and_leaves_nothing(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: ["no such thing"])
    assert main([*HOST, "--seeds", "0-4", "--jobs", "1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "kytolly: gamma=0.9: no such thing"
    assert len(processes.started) == 1 and not Path("s").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep"], "ALGO is missing"),
        (SWEEP, "--set is missing"),
        ([*SWEEP, "--set", "learning_rat=1"], "Did you mean 'learning_rate'"),
        ([*SWEEP, "--set", "wrappers=a"], "can vary"),
        ([*SWEEP, "--set", "seed=1,2"], "give --seeds"),
        ([*SWEEP, "--set", "gamma=0.9,2"], "with gamma=2, gamma is 2, expected"),
        ([*SWEEP, "--set", "gamma=0.9,0.90"], "has 0.9 twice"),
        ([*SWEEP, "--set", "gamma=0.9", "--set", "gamma=1"], "gamma is given twice"),
        ([*SWEEP, "--set", "gamma=0.9", "--gamma", "1"], "by a flag and by --set"),
        ([*SWEEP, "--set", "gamma=0.9", "--seed", "1", "--seeds", "0-1"], "are both given"),
        ([*SWEEP, "--set", "gamma=0.9", "--together", "--loop", "host"], "loop is host"),
        (["sweep", "ppo", "--set", "gamma=0.9"], "--env is missing"),
        (["sweep", "--resume", "nowhere"], "nowhere has no sweep.yaml"),
        (["sweep", "--resume", "old", "--seeds", "0-1"], "Leave --seeds out"),
        (["sweep", "--resume", "old", "--gamma", "1"], "Leave --gamma out"),
        (["sweep", "dqn", "--resume", "old"], "the sweep in old is of ppo"),
        (["sweep", "--resume", "broken"], "something else than a sweep wrote"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, message, tmp_path, monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    plan = {"values": {"gamma": [0.9]}, "seeds": [0], "together": False, "jobs": 1}
    sweep = Sweep.create("old", PPOConfig(), "CartPole-v1", plan, None, print)
    with sweep.training():
        shutil.copytree("old", "broken")
    file = Path("broken/sweep.yaml")
    file.write_text(file.read_text().replace("seeds:", "sids:"))
    before = sorted(tmp_path.rglob("*"))
    assert main(words) == 2 and not processes.started
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_too_many_combinations_are_refused():
    values = {"gamma": [n / 40 for n in range(40)], "clip_range": [n / 40 for n in range(1, 40)]}
    with pytest.raises(ValueError, match="1,560 combinations, expected at most 1,000"):
        combined_configs(PPOConfig(), values)


def test_a_sweep_in_one_program_is_stopped_and_completed(tmp_path, monkeypatch):
    settings = [*SHORT_PPO, "--checkpoint-interval-env-steps", "75"]
    words = [*SWEEP, "--set", "learning_rate=1e-3,1e-4", "--seeds", "3,5", "--no-tuned", *settings]
    run, calls = PopulationInTurns.run_each, []

    def run_until(self, *arguments):
        calls.append(arguments)
        if len(calls) > 2:  # of which the first only compiles
            raise KeyboardInterrupt
        return run(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PopulationInTurns, "run_each", run_until)
        done = kytolly(*words, cwd=tmp_path)
    assert done.status == 130 and "0 of 4 runs are done" in done.errors
    assert "4 runs of 2 settings to train together, in one program, in s" in done.errors
    done = kytolly("sweep", "--resume", "s", "--json", cwd=tmp_path)
    assert done.status == 0, done.errors
    rows = json.loads(done.out)["settings"]
    assert {settings_label(row["settings"]) for row in rows} == {
        "learning_rate=0.001",
        "learning_rate=0.0001",
    }
    assert [(run["seed"], run["env_steps"]) for run in rows[0]["runs"]] == [(3, 150), (5, 150)]
    run_dir = tmp_path / "s" / "learning_rate=0.0001" / "seed-5"
    assert "learning_rate: 0.0001\n" in (run_dir / "config.yaml").read_text()
    assert load(run_dir).act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    resumed = ["train", "ppo", "--resume", run_dir, "--total-env-steps", "300", "--json"]
    assert json.loads(kytolly(*resumed, cwd=tmp_path).out)["env_steps"] == 300


def test_the_populations_of_a_sweep_train_on_a_cluster_as_here(tmp_path, monkeypatch):
    words = [*SWEEP[:-1], "far", "--set", "learning_rate=1e-3,1e-4", "--set", "gamma=0.9,0.99"]
    words += ["--no-tuned", "--json", "--seeds", "3,5", *SHORT_PPO]
    as_cluster(sweep_command, monkeypatch, slots=3)
    far = kytolly(*words, "--on", "ray", cwd=tmp_path)
    assert far.status == 0, far.errors
    assert "8 runs of 4 settings to train together, in 2 programs (by gamma) and 3" in far.errors
    assert yaml.safe_load(Path("far/sweep.yaml").read_text())["sweep"]["jobs"] == 3
    words[words.index("far")] = "near"
    near = kytolly(*words, "--jobs", "1", cwd=tmp_path)
    returns = [
        [(row["settings"], row["best"]["returns"]) for row in json.loads(run.out)["settings"]]
        for run in (far, near)
    ]
    assert returns[0] == returns[1]


def test_a_node_gets_the_settings_of_all_groups_and_the_runs_of_its_population(tmp_path):
    for name in ("sweep.yaml", "a/group.yaml", "a/seed-1/config.yaml", "a/seed-10/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    child = ChildRun("0", tmp_path / "population-1", [], ["a/seed-1"])
    files = files_of(child, str(tmp_path))
    assert sorted(files) == ["a/group.yaml", "a/seed-1/config.yaml", "sweep.yaml"]


def test_each_program_has_a_process_and_one_seed_has_no_interval(tmp_path):
    cfg = PPOConfig(total_env_steps=150, num_envs=3, rollout_steps=25, num_minibatches=3)
    cfg = dataclasses.replace(cfg, xla=False, evaluation_episodes=1, final_evaluation_episodes=2)
    plan = {"values": {"epochs": [2, 3]}, "seeds": [4], "together": True, "jobs": 1}
    sweep = Sweep.create("s", cfg, "CartPole-v1", plan, None, print)
    one = kytolly("sweep", "ppo", "--resume", "s", "--part", "1", cwd=tmp_path)  # as a child does
    assert one.status == 0, one.errors
    with sweep.training():
        pass
    assert [path.parent.parent.name for path in Path("s").glob("*/*/result.json")] == ["epochs=3"]
    done = kytolly("sweep", "--resume", "s", cwd=tmp_path)
    assert done.status == 0, done.errors
    assert "1 runs of 2 settings to train together, in 2 programs (by epochs), in s" in done.errors
    assert "population 1 of 2: 1 member, 0 of 150 env steps each" in done.errors
    assert "One seed has no interval" in done.out
    assert len(list(Path("s").glob("*/*/result.json"))) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jobs: 1", "jobs: 0", "something else than a sweep wrote"),
        ("gamma:\n    - 0.9", "gamma: []", "something else than a sweep wrote"),
        ("", "", "is a link"),
    ],
)
def test_a_folder_of_strangers_is_refused(old, new, message, tmp_path, capsys):
    plan = {"values": {"gamma": [0.9]}, "seeds": [0], "together": False, "jobs": 1}
    sweep = Sweep.create("s", PPOConfig(), "CartPole-v1", plan, None, print)
    with sweep.training():
        file = Path("s/sweep.yaml")
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old or "\0", new))
        if not old:
            (tmp_path / "elsewhere").mkdir()
            Path("s/gamma=0.9/seed-0").symlink_to(tmp_path / "elsewhere")
    assert main(["sweep", "--resume", "s"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
