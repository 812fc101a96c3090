"""`kytolly tune`: trials, pruning, a study that continues, and settings that train reads back."""

import contextlib
import dataclasses
import json
import re
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from kytolly.agent.algorithms import make_config
from kytolly.command import tune as tune_command
from kytolly.command.entry import main, parse
from kytolly.command.train import given_config
from kytolly.command.tune import study_file
from kytolly.config.ppo import PPOConfig
from kytolly.config.search_space import SEARCH_SPACES, Choice, search_space
from kytolly.experiment.study import chosen_settings_text
from kytolly.experiment.trial_populations import Halving
from kytolly.record.metrics_file import evaluations
from tests.helpers.commands import SHORT_PPO, as_cluster, kytolly
from tests.helpers.processes import Processes
from tests.helpers.written_runs import write_run

TUNE = ["tune", "ppo", "--env", "CartPole-v1", "--study", "s.db"]
FEW = ["--total-env-steps", "2000"]  # an evaluation every 100, as the written runs have


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a study of one trial."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Processes(patch, lambda *_: [1.0])
        assert main([*TUNE, *FEW, "--trials", "1"]) == 0
    return folder


def ends(space):
    """Every setting at its lowest and at its highest."""
    for pick in (0, -1):
        yield {k: one.values[pick] if isinstance(one, Choice) else one[:2][pick]
               for k, one in space.items()}  # fmt: skip


@pytest.mark.parametrize("algorithm", SEARCH_SPACES)
def test_every_setting_of_a_search_space_is_one_of_the_algorithm(algorithm):
    for settings in ends(SEARCH_SPACES[algorithm]):
        make_config({"algorithm": algorithm, **settings})
    for name, one in SEARCH_SPACES[algorithm].items():
        for value in one.values if isinstance(one, Choice) else ():
            make_config({"algorithm": algorithm, name: value})


def test_what_is_given_is_not_searched():
    assert set(SEARCH_SPACES["ppo"]) - set(search_space("ppo", {"gamma"})) == {"gamma"}
    with pytest.raises(ValueError, match="all settings that are searched for ppo are given"):
        search_space("ppo", SEARCH_SPACES["ppo"])
    with pytest.raises(ValueError, match="ppo-kl has no search space, expected one of dqn"):
        search_space("ppo-kl")


def test_the_best_settings_train_again_as_they_were(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda _, seed: [float(seed), float(10 - abs(seed - 42))])
    assert main([*TUNE, *FEW, "--trials", "4", "--seed", "40", "--gamma", "0.9", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [p.seed for p in processes.started] == [40, 41, 42, 43]
    assert all("gamma" not in trial["params"] for trial in found["trials"])
    # Of the returns max(40, 8), ..., the seed itself is the largest: trial 3 with 43.
    assert (found["best"]["number"], found["best"]["return_mean"]) == (3, 43.0)
    assert "trial 3: return 43.0" in printed.err and "(best 43.0, trial 3)" in printed.err
    words = ["train", "ppo", "--env", "CartPole-v1", "--config", found["best"]["config"]]
    cfg, env = given_config(parse(words))
    expected = make_config(dict(processes.started[3].settings))
    assert env == "CartPole-v1" and dataclasses.replace(cfg, seed=43) == expected
    assert cfg.gamma == 0.9 and cfg.total_env_steps == 2000
    assert cfg.learning_rate == found["best"]["params"]["learning_rate"]
    assert Path("s/trials.png").read_bytes()[:4] == b"\x89PNG"


def test_a_default_is_told_only_where_it_was_given():
    """A number that nobody gave would be another one on another kind of environment."""
    for cfg, told in ((PPOConfig(), False), (PPOConfig(gae_lambda_value=0.99), True)):
        text = chosen_settings_text(cfg, "Unknown-v0", {"gamma": 0.9}, "a note")
        assert ("gae_lambda_value: 0.99" in text) is told and "gamma: 0.9" in text


def test_a_trial_that_lags_behind_is_stopped_and_the_others_are_not(monkeypatch, capsys):
    good, bad = [100.0 + n for n in range(8)], [1.0] * 8
    processes = Processes(monkeypatch, lambda _, seed: bad if seed in (2, 6) else good)
    assert main([*TUNE, *FEW, "--trials", "7", "--jobs", "1", "--json"]) == 0
    states = [trial["state"] for trial in json.loads(capsys.readouterr().out)["trials"]]
    # Trial 2 has nothing to be compared with: pruning begins after five trials.
    assert states == ["complete"] * 6 + ["pruned"]
    lagging = processes.started[6]
    assert lagging.signals == [signal.SIGTERM] and lagging.polls < 8
    assert not any(one.signals for one in processes.started[:6])


def test_a_study_goes_on_where_it_was_stopped(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0, 2.0])
    processes.interrupt_at = 7
    assert main([*TUNE, *FEW, "--trials", "5", "--jobs", "1"]) == 130
    assert "2 of 5 trials are in s.db" in capsys.readouterr().err
    assert processes.started[2].signals == [signal.SIGTERM]
    processes = Processes(monkeypatch, lambda *_: [3.0])
    assert main([*TUNE, *FEW, "--trials", "5", "--json"]) == 0
    assert len(processes.started) == 3  # the interrupted one does not count
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [(trial["number"], trial["value"]) for trial in trials] == [
        (0, 2.0), (1, 2.0), (3, 3.0), (4, 3.0), (5, 3.0),
    ]  # fmt: skip
    processes = Processes(monkeypatch, lambda *_: [3.0])
    assert main([*TUNE, *FEW, "--trials", "5", "--json"]) == 0 and not processes.started


def test_a_continued_study_draws_other_settings(monkeypatch, capsys):
    Processes(monkeypatch, lambda *_: [1.0])

    def params(*words):
        assert main([*TUNE[:-1], *words, *FEW, "--json"]) == 0
        return [one["params"] for one in json.loads(capsys.readouterr().out)["trials"]]

    first = params("s.db", "--trials", "2")
    after = params("s.db", "--trials", "4")
    assert after[:2] == first and len({one["learning_rate"] for one in after}) == 4
    assert params("t.db", "--trials", "2") == first  # a new study of the same seed
    assert params("t.db", "--trials", "4") == after


@pytest.mark.parametrize("moved", [False, True], ids=["before", "during"])
def test_the_run_of_another_study_is_no_trial(moved, monkeypatch, capsys):
    old = write_run(Path("old/trial-1"), [500.0])
    (old / "result.json").write_text(json.dumps({"evaluation": {"return_mean": 500.0}}))
    (old / "checkpoints").mkdir()
    (old / "checkpoints" / "ckpt-1.index").touch()

    def place():
        Path("s").mkdir(exist_ok=True)
        old.rename("s/trial-1")

    def returns(_, seed):
        if moved and seed == 0:  # while the first trial trains
            place()
        return [1.0]

    processes = Processes(monkeypatch, returns)
    if not moved:
        place()
        Path("s.db").touch()  # SQLite takes an empty file for a new database
    assert main([*TUNE, *FEW, "--trials", "2", "--jobs", "1", "--seed", "0"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "s/trial-1 exists" in last and len(processes.started) == moved
    assert Path("s/trial-1/checkpoints/ckpt-1.index").is_file() and Path("s.db").is_file()


def test_a_result_of_a_process_that_failed_is_no_value(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    start = processes.start

    def start_after_somebody_else(argv, **options):
        process = start(argv, **options)
        process.write([500.0])
        result = {"evaluation": {"return_mean": 500.0}}
        (process.run_dir / "result.json").write_text(json.dumps(result))
        process.end(2, "exists and is not empty")
        process.poll = lambda: 2
        return process

    monkeypatch.setattr("kytolly.experiment.processes.subprocess.Popen", start_after_somebody_else)
    assert main([*TUNE, *FEW, "--trials", "1", "--json"]) == 1
    (trial,) = json.loads(capsys.readouterr().out)["trials"]
    assert (trial["state"], trial["value"]) == ("failed", None)


@pytest.mark.parametrize(
    "name",
    [
        "{SCHEMA_VERSION}?mode=ro%20#ü'\"$\\.sqlite",
        *(pytest.param(name, marks=pytest.mark.learning) for name in ("100%.db", "x@h:1.db")),
    ],
)
def test_a_study_is_in_the_file_that_is_named(name, monkeypatch, capsys):
    Processes(monkeypatch, lambda *_: [1.0])
    assert main([*TUNE[:-1], name, *FEW, "--trials", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == name
    assert {path.name for path in Path().iterdir()} <= {name, f"{name}.lock", Path(name).stem}
    with contextlib.closing(sqlite3.connect(name)) as file:
        assert file.execute("select count(*) from trials").fetchone() == (1,)


@pytest.mark.parametrize("env", ["gymnasium:CartPole-v1", "ALE/Pong-v5", 'a b:"C"'])
def test_the_name_of_a_new_study_has_no_colon(env):
    file = study_file(None, env, "ppo")
    assert file.parent == Path("runs")
    assert re.fullmatch(r"[A-Za-z0-9-]+_ppo_tune_\d{8}-\d{6}\.db", file.name)


def test_failed_trials_are_named_and_no_return_is_no_success(monkeypatch, capsys):
    Processes(monkeypatch, lambda *_: [1.0, "it broke"])
    assert main([*TUNE, *FEW, "--trials", "2", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [trial["failed"] for trial in found["trials"]] == ["it broke"] * 2
    assert found["best"] is None and not Path("s/best.yaml").exists()


def test_settings_that_do_not_fit_start_no_process(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    words = ["tune", "ppo", "--env", "Acrobot-v1", "--study", "s.db", *FEW, "--json"]
    assert main([*words, "--gradient-accumulation", "4", "--trials", "12"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    odd = [trial for trial in trials if trial["params"]["num_minibatches"] % 4]
    assert 0 < len(odd) == 12 - len(processes.started)
    assert all("does not divide" in trial["failed"] for trial in odd)


def test_every_trial_gets_the_arguments_and_wrappers_of_the_environment(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    own = "--env-kwargs size=8 --wrapper gymnasium.wrappers:FlattenObservation".split()
    assert main([*TUNE, *FEW, *own, "--trials", "1", "--json"]) == 0
    (process,) = processes.started
    assert "--trust" in process.words and process.settings["env_kwargs"] == {"size": 8}
    assert process.settings["wrappers"] == ["gymnasium.wrappers:FlattenObservation"]


def test_what_is_wrong_for_every_trial_is_said_once_and_leaves_nothing(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: ["no such environment"])
    assert main([*TUNE, *FEW, "--jobs", "1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "kytolly: no such environment"
    assert len(processes.started) == 1
    assert not Path("s.db").exists() and not Path("s").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dqn", "--env", "CartPole-v1"], "another algorithm (ppo), and"),
        (["ppo", "--env", "Acrobot-v1"], "another environment"),
        (["ppo", "--env", "CartPole-v1", "--total-env-steps", "99"], "with other settings"),
        (["ppo", "--env", "CartPole-v1", *FEW, "--gamma", "0.5"], "another space (gamma ["),
        (["ppo"], "--env is missing"),
        (["ppo-kl", "--env", "CartPole-v1"], "ppo-kl keeps a policy near"),
        (["ppo", "--env", "CartPole-v1", "--study", "text.db"], "text.db is no SQLite file"),
        (["ppo", "--env", "CartPole-v1", "--study", "odd.db"], "odd.db is no study that Optuna"),
        (["ppo", "--env", "CartPole-v1", "--study", "s"], "ends with .db, .sqlite,"),
        (["ppo", "--env", "CartPole-v1", "--study", "left.db"], "left holds files"),
        (["ppo", "--env", "CartPole-v1", "--study", "/proc/x.db"], "cannot be used as a study"),
    ],
)
def test_a_study_for_something_else_is_refused(words, message, finished, monkeypatch, capsys):
    shutil.copytree(finished, ".", dirs_exist_ok=True)
    Path("text.db").write_text("my notes")
    with sqlite3.connect("odd.db") as other:
        other.execute("create table studies (mine integer)")
    other.close()
    Path("left").mkdir()
    Path("left/trial-0").touch()
    processes = Processes(monkeypatch, lambda *_: [1.0])
    extra = [] if "--study" in words else ["--study", "s.db"]
    assert main(["tune", *words, *extra, "--trials", "2"]) == 2 and not processes.started
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert Path("text.db").read_text() == "my notes"


def test_a_study_in_use_is_refused(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    with FileLock("s.db.lock"):
        assert main([*TUNE, *FEW]) == 2
    assert "s.db is in use by another process" in capsys.readouterr().err and not processes.started


def test_no_trial_begins_after_the_time(monkeypatch, capsys):
    processes = Processes(monkeypatch, lambda *_: [1.0])
    assert main([*TUNE, *FEW, "--timeout", "1e-9", "--json"]) == 1
    assert not processes.started and json.loads(capsys.readouterr().out)["trials"] == []


def test_without_optuna_the_message_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main([*TUNE, *FEW]) == 2
    assert 'pip install "kytolly[tune]"' in capsys.readouterr().err


def test_a_real_trial_trains(tmp_path):
    """One process."""
    given = "--total-env-steps 256 --num-envs 2 --hidden-units 4 --no-xla --rollout-steps 64"
    given += " --evaluation-episodes 1 --final-evaluation-episodes 2 --epochs 1"
    done = kytolly(*TUNE, *given.split(), "--trials", "1", "--json", cwd=tmp_path)
    assert done.status == 0, done.errors
    found = json.loads(done.out)
    assert [trial["state"] for trial in found["trials"]] == ["complete"]
    assert (tmp_path / "s" / "trial-0" / "best.keras").is_file()
    assert found["best"]["return_mean"] >= 1


TOGETHER = [*TUNE, *SHORT_PPO[2:-2], "--total-env-steps", "300", "--together"]
TOGETHER += ["--evaluation-interval-env-steps", "75"]


def test_trials_in_one_program_halve_in_place_and_the_study_goes_on(tmp_path):
    words = [*TOGETHER, "--jobs", "4", "--json"]
    done = kytolly(*words, "--trials", "4", cwd=tmp_path)
    assert done.status == 0, done.errors
    found = json.loads(done.out)
    trials = {trial["number"]: trial for trial in found["trials"]}
    # Of 4 members 2 end after 75 of 300 env steps and 1 after 150.
    assert sorted(trial["state"] for trial in trials.values()) == ["complete"] + ["pruned"] * 3
    last = {n: max(evaluations(tmp_path / "s" / f"trial-{n}"))[0] for n in trials}
    assert sorted(last.values()) == [75, 75, 150, 300]
    best = max(last, key=lambda number: last[number])
    assert found["best"]["number"] == best and trials[best]["state"] == "complete"
    # Rollouts, epochs and minibatches are given. Gamma is drawn once, as it is in the program.
    gammas = {trial["params"]["gamma"] for trial in trials.values()}
    rates = {trial["params"]["learning_rate"] for trial in trials.values()}
    assert (len(gammas), len(rates)) == (1, 4)
    assert "4 trials to train, 4 in one program" in done.errors
    assert "Warning" not in done.errors and "PartialFixed" not in done.errors
    done = kytolly(*words, "--trials", "5", cwd=tmp_path)
    assert done.status == 0, done.errors
    assert [trial["state"] for trial in json.loads(done.out)["trials"]][4] == "complete"
    words = ["train", "ppo", "--env", "CartPole-v1", "--config", tmp_path / "s" / "best.yaml"]
    assert given_config(parse(list(map(str, words))))[0].rollout_steps == 25


def test_populations_of_trials_in_processes_tell_the_study_what_those_here_do(
    tmp_path, monkeypatch
):
    words = [*TOGETHER, "--jobs", "4", "--json", "--trials", "4"]
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here = kytolly(*words, cwd=tmp_path / "here")
    as_cluster(tune_command, monkeypatch)
    there = kytolly(*words, "--on", "ray", cwd=tmp_path / "there")
    assert there.status == 0, there.errors
    assert json.loads(here.out)["trials"] == json.loads(there.out)["trials"]
    assert "4 trials to train, 4 in a population" in there.errors


def test_who_resumes_a_population_of_trials_ends_those_that_had_ended():
    halving = Halving(100)
    halving.replay([[(25, 1.0)], [(25, 2.0)], [(25, 3.0), (50, 3.0)], [(25, 4.0), (50, 2.0)]])
    assert halving.ended == {0, 1, 3}
    # After 50 env steps one of the others has not been evaluated: nothing is known yet.
    halving = Halving(100)
    halving.replay([[(25, 1.0)], [(25, 2.0)], [(25, 3.0), (50, 3.0)], [(25, 4.0)]])
    assert halving.ended == {0, 1}
    assert halving.weak_members(50, {2: 3.0, 3: 2.0}) == [3]


def test_trials_that_no_program_holds_are_refused(capsys):
    words = ["tune", "ppo", "--env", "FrozenLake-v1", "--study", "s.db", "--together"]
    assert main([*words, "--trials", "2"]) == 2
    assert "no tensor code" in capsys.readouterr().err and not Path("s.db").exists()


@pytest.mark.parametrize(
    ("moments", "ended"),
    [([(10, "abcd"), (25, "abcd"), (50, "cd")], [[], ["a", "b"], ["c"]]), ([(60, "ab")], [["a"]])]
    + [([(25, "a"), (50, "a")], [[], []])],
)
def test_the_weaker_half_ends_after_a_quarter_and_after_half_of_a_run(moments, ended):
    halving = Halving(100)
    scores = dict(zip("abcd", [float("nan"), 2.0, 3.0, 4.0], strict=True))
    found = [halving.weak_members(at, {m: scores[m] for m in names}) for at, names in moments]
    assert found == ended and halving.ended == set().union(*ended)
