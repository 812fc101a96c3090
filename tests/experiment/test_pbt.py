"""Population-based training: who continues from whom, and what the winner did."""

import csv
import json
import math

import numpy as np
import pytest

from kytolly import PPOConfig
from kytolly.agent.schedules import Schedule
from kytolly.command.entry import main
from kytolly.config.files import read_settings
from kytolly.config.schedules import schedule_table
from kytolly.experiment.pbt import PopulationBased, config_for_pbt
from kytolly.loop.turns import PopulationInTurns
from tests.helpers.commands import SHORT_PPO, kytolly

CONFIG = config_for_pbt(PPOConfig(total_env_steps=1000, num_envs=2, rollout_steps=5), 100)
NOW = {"learning_rate": [0.001] * 10, "clip_range": [0.2] * 10}


def population(folder, size=10):
    return PopulationBased(CONFIG, size, 100, folder)


def test_the_weakest_fifth_continues_from_the_strongest_with_other_numbers(tmp_path):
    event = population(tmp_path).decide(100, [5, 4, 3, -math.inf, 9, 8, 7, 6, 10, 1], NOW)
    assert {event.sources[3], event.sources[9]} <= {4, 8}
    others = [m for m in range(10) if m not in (3, 9)]
    assert [event.sources[m] for m in others] == others
    for name, values in event.numbers.items():
        assert [values[m] for m in others] == [NOW[name][m] for m in others]
        assert all(values[m] != NOW[name][m] for m in (3, 9))


def test_a_return_that_is_no_number_is_the_weakest(tmp_path):
    event = population(tmp_path).decide(100, [5, 4, 3, math.nan, 9, 8, 7, 6, 10, 1], NOW)
    assert {event.sources[3], event.sources[9]} <= {4, 8}


def test_a_member_as_good_as_the_strongest_goes_on_as_it_is(tmp_path):
    event = population(tmp_path).decide(100, [0] * 10, NOW)
    assert event.sources == list(range(10)) and event.numbers == NOW
    event = population(tmp_path).decide(200, [3, 3, 3, 3, 3, 2, 3, 3, 3, 3], NOW)
    assert [m for m, source in enumerate(event.sources) if m != source] == [5]


def test_decisions_are_made_once_an_interval_and_never_at_the_end(tmp_path):
    pbt = population(tmp_path)
    steps = [50, 90, 110, 150, 205, 290, 1000]
    made = [step for step in steps if pbt.decide(step, range(10), NOW)]
    assert made == [110, 205]


def test_a_resumed_population_decides_the_same(tmp_path):
    pbt = population(tmp_path)
    events = [pbt.decide(step, np.arange(10) * step % 7, NOW) for step in (100, 200, 300)]
    again = population(tmp_path)
    assert again.events == events
    assert again.go_back(200) == (events[0].numbers, events[1])
    assert again.events == events[:2]
    assert again.decide(300, np.arange(10) * 300 % 7, NOW) == events[2]
    assert population(tmp_path).go_back(250) == (events[1].numbers, None)
    assert population(tmp_path).go_back(0) == (None, None)
    (tmp_path / "pbt.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="does not tell how 10 members"):
        population(tmp_path)


def test_the_schedules_of_a_member_are_those_of_its_ancestors(tmp_path):
    pbt = population(tmp_path, size=2)
    configs = pbt.configs()
    first = [cfg.clip_range for cfg in configs]
    pbt.decide(100, [1.0, 0.0], {"learning_rate": [1e-3] * 2, "clip_range": first})
    assert pbt.events[0].sources == [0, 0]
    text = pbt.schedules(1, configs)["clip_range"]
    schedule = Schedule(*schedule_table(CONFIG, "clip_range", text), CONFIG.total_env_steps)
    # Before each rollout of 10 env steps: the ancestor's number, then the member's own.
    values = [float(schedule(step)) for step in range(0, 1000, 10)]
    own = pbt.events[0].numbers["clip_range"][1]
    np.testing.assert_allclose(values, [first[0]] * 10 + [own] * 90, rtol=1e-4)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: PopulationBased(CONFIG, 1, 100, path), "expected at least 2 members"),
        (
            lambda _: config_for_pbt(
                PPOConfig(learning_rate_final=0.0), 9_999, {"learning_rate_final"}
            ),
            "learning_rate_final is 0.0, expected none",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make(tmp_path)


@pytest.mark.parametrize(
    ("total", "every", "interval", "expected"),
    [
        (31_250, 20_000, 4_096, 4_096),  # tuned settings evaluate seldom
        (31_250, 1_000, 4_096, 1_000),
        (100_000, None, 1_000, 1_000),
        (100_000, None, 100_000, None),
    ],
)
def test_no_decision_waits_for_an_evaluation(total, every, interval, expected):
    cfg = PPOConfig(total_env_steps=total, evaluation_interval_env_steps=every)
    assert config_for_pbt(cfg, interval).evaluation_interval_env_steps == expected
    given = {"evaluation_interval_env_steps"}
    assert config_for_pbt(cfg, interval, given).evaluation_interval_env_steps == every


def test_the_command_trains_is_continued_and_writes_what_one_run_repeats(tmp_path, monkeypatch):
    words = ["train", "ppo", "--env", "CartPole-v1", "--pbt", "--population", "3"]
    words += ["--interval", "60", *SHORT_PPO[:-1], "75", "--json"]
    words += ["--checkpoint-interval-env-steps", "75", "--log-interval-env-steps", "75"]
    copy, copied = PopulationInTurns.copy, []

    def record(self, sources):
        copied.append(list(sources))
        copy(self, sources)

    monkeypatch.setattr(PopulationInTurns, "copy", record)
    whole = kytolly(*words, "--log-dir", "whole", cwd=tmp_path)
    assert whole.status == 0, whole.errors
    events = [json.loads(x) for x in (tmp_path / "whole" / "pbt.jsonl").read_text().splitlines()]
    assert copied == [event["sources"] for event in events] and len(events) == 1
    for member in range(3):
        with open(tmp_path / "whole" / f"seed-{member}" / "metrics.csv") as file:
            last = list(csv.DictReader(file))[-1]
        rate = events[-1]["numbers"]["learning_rate"][member]
        assert float(last["learning_rate"]) == pytest.approx(rate, rel=1e-5)
    run, count = PopulationInTurns.run_each, 0

    def run_until(self, *arguments):
        nonlocal count
        count += 1
        if count > 2:
            raise KeyboardInterrupt
        return run(self, *arguments)

    monkeypatch.setattr(PopulationInTurns, "run_each", run_until)
    done = kytolly(*words, "--log-dir", "stopped", cwd=tmp_path)
    assert done.status == 130 and "`kytolly train ppo --pbt --resume stopped`" in done.errors
    monkeypatch.undo()
    done = kytolly("train", "ppo", "--pbt", "--resume", "stopped", "--json", cwd=tmp_path)
    assert done.status == 0, done.errors
    first, second = json.loads(whole.out), json.loads(done.out)
    assert [m["return"] for m in first["members"]] == [m["return"] for m in second["members"]]
    assert first["schedules"] == second["schedules"]
    assert (tmp_path / "whole" / "pbt.jsonl").read_text().count("\n") >= 1
    files = [tmp_path / "whole" / name for name in ("pbt.jsonl", "winner.yaml")]
    before = [file.read_text() for file in files]
    again = kytolly("train", "ppo", "--pbt", "--resume", "whole", "--json", cwd=tmp_path)
    assert json.loads(again.out)["schedules"] == first["schedules"]
    assert [file.read_text() for file in files] == before
    settings, _ = read_settings(tmp_path / "whole" / "winner.yaml")
    assert settings["schedules"] == first["schedules"] and set(first["schedules"]) >= {"clip_range"}


@pytest.mark.parametrize(
    "words, message",
    [
        (["--pbt", "--seeds", "0-3"], "--seeds and --pbt do not go together"),
        (["--population", "4"], "--population is for --pbt"),
        (["--pbt", "--env", "FrozenLake-v1", "--together"], "FrozenLake-v1 is no tensor code"),
        (["--pbt", "--on", "ray", "--together"], "--on gives each member to some node"),
        (["--pbt", "--run-cpus", "2"], "--run-cpus is for a cluster"),
        (["--pbt", "--env", "Cartpol-v1"], "unknown environment 'Cartpol-v1'. Nearest names: Cart"),
        (["--pbt", "--population", "1"], "got a population of 1"),
        (["--pbt", "--resume", "."], "is not of a training with --pbt"),
        (["--pbt", "--learning-rate-final", "0"], "learning_rate_final is 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    env = [] if {"--env", "--resume"} & set(words) else ["--env", "CartPole-v1"]
    assert main(["train", "ppo", *env, *words]) == 2
    assert message in capsys.readouterr().err
    assert not any((tmp_path / "runs").glob("*"))
