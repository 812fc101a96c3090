"""The table of the defaults: tasks in other units, and statistics worked out by hand."""

import json

import gymnasium
import numpy as np
import pytest

from kytolly.benchmarks import default_tasks, defaults, learning, suite
from kytolly.benchmarks.default_tasks import TASKS, UNITS, make_env
from kytolly.benchmarks.suite import Options
from kytolly.experiment import seed_statistics

CARTPOLE, PENDULUM = default_tasks.CARTPOLE, default_tasks.PENDULUM


def test_units_change_nothing_but_the_unit():
    plain = make_env(CARTPOLE)
    first, _ = plain.reset(seed=3)
    obs, *_ = plain.step(1)
    for units, reward, scale in (
        ("rewards x 1000", 1000.0, 1.0),
        ("rewards x 0.001", 0.001, 1.0),
        ("observations x 100", 1.0, 100.0),
    ):
        task = CARTPOLE._replace(units=units)
        env = make_env(task)
        np.testing.assert_allclose(env.reset(seed=3)[0], scale * first, rtol=1e-6)
        changed, got, *_ = env.step(1)
        np.testing.assert_allclose(changed, scale * obs, rtol=1e-6)
        assert got == pytest.approx(reward)
        assert got / task.reward_scale == pytest.approx(1.0)
        assert isinstance(env.observation_space, gymnasium.spaces.Box)
        assert env.observation_space.contains(changed)
        assert task.name == f"CartPole-v1, {units}"


def test_units_of_actions_change_nothing_but_the_unit():
    plain, other = make_env(PENDULUM), make_env(PENDULUM._replace(units="actions from 100 to 200"))
    for env in (plain, other):
        env.reset(seed=3)
    assert other.action_space == gymnasium.spaces.Box(100.0, 200.0, (1,))
    for torque, shifted in ((-2.0, 100.0), (0.0, 150.0), (1.0, 175.0), (2.0, 200.0)):
        actions = (np.array([number], np.float32) for number in (torque, shifted))
        (obs, reward, *_), (other_obs, other_reward, *_) = (
            env.step(action) for env, action in zip((plain, other), actions, strict=True)
        )
        np.testing.assert_allclose(other_obs, obs, rtol=1e-5)
        assert other_reward == pytest.approx(reward)


def test_falls_are_evaluations_below_four_fifths_after_the_first_that_solves():
    # Of the first run [100, 79, 80] come after the 100; of the second nothing does.
    runs = [[(1, 10.0), (2, 100.0), (3, 100.0), (4, 79.0), (5, 80.0)], [(1, 99.0), (2, 100.0)]]
    assert defaults.falls(100.0, runs) == [1, 3]
    assert defaults.falls(-100.0, [[(1, -90.0), (2, -121.0), (3, -119.0)]]) == [1, 2]


def test_the_interval_of_all_tasks_draws_each_tasks_seeds():
    low, high = seed_statistics.tasks_interval([[0.0, 0.0], [1.0, 1.0]])
    assert low == high == 0.5  # each draw has two zeros and two ones
    low, high = seed_statistics.tasks_interval([[0.0, 1.0], [1.0, 1.0]])
    assert (low, high) == (0.5, 1.0)  # the middle two of 0, 0, 1, 1 or of four ones


def test_a_table_keeps_its_runs_and_compares_them_in_the_environments_own_units(
    monkeypatch, tmp_path
):
    task = CARTPOLE._replace(units="rewards x 1000")
    monkeypatch.setattr(defaults, "TASKS", (CARTPOLE, task))
    theirs = [
        {"algorithm": "dqn", "task": t.name, "seed": seed, "last": last, "best": 100.0,
         "versions": {"torch": "2"}}
        for t in (CARTPOLE, task) for seed, last in ((1, 24.0), (2, 300.0))
    ]  # fmt: skip
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({"random": {CARTPOLE.name: 25.0, task.name: 25.0}, "runs": theirs}))
    monkeypatch.setattr(defaults, "COMPETITOR", file)
    commands = []

    def run_seed(words, seed, run_dir):
        commands.append(" ".join(words))
        if seed == 2:
            return {"seed": seed, "failed": "out of memory"}
        run_dir.mkdir(parents=True)
        unit = 1000.0 if "--wrapper" in words else 1.0
        returns = [(10, 475.0 * unit), (20, 300.0 * unit)]
        return {"seed": seed, "best": 475 * unit, "last": 250 * unit, "evaluations": returns}

    monkeypatch.setattr(defaults, "run_seed", run_seed)
    options = Options(algorithm="dqn", seeds=2, log_dir=str(tmp_path / "runs"))
    watch = suite.Watch(suite.progress_display())
    report = defaults.defaults_table(options, watch)
    (total,) = report.data["rows"]
    plain, scaled = total["tasks"]
    assert plain["ours_last"]["returns"] == scaled["ours_last"]["returns"] == [250.0]
    assert scaled["failed"] == ["out of memory"]
    assert scaled["falls"] == [1, 1]
    assert scaled["probability_of_improvement"] == 0.5  # above 24, below 300
    # (250 - 25) / (475 - 25) = 0.5
    assert total["ours"]["interquartile_mean"] == pytest.approx(0.5)
    assert total["below"] == []
    wrapper = "--wrapper kytolly.benchmarks.default_tasks:LargeRewards"
    assert sum(wrapper in line for line in commands) == 2
    assert all("--no-tuned --env CartPole-v1" in line for line in commands)
    again = defaults.defaults_table(options, watch)
    assert len(commands) == 4 + 2  # a run that failed is tried again
    assert again.data["rows"] == report.data["rows"]
    assert "1 failed: out of memory" in report.rows[1][0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (Options(algorithm="dqm"), r"Did you mean 'dqn'\?"),
        (Options(algorithm="dqn", env="Pendulum-v1"), "which dqn has no task for"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        defaults.defaults_table(options, suite.Watch(suite.progress_display()))


def test_the_file_of_the_competitor_has_the_tables_tasks_and_lengths():
    theirs = defaults.read_competitor()
    tasks = {task.name: task for task in TASKS}
    assert set(theirs["random"]) == set(tasks)
    for run in theirs["runs"]:
        assert run["env_steps"] == tasks[run["task"]].env_steps[run["algorithm"]]
        assert run["versions"]["stable-baselines3"]
    for task in TASKS:
        assert theirs["random"][task.name] < task.goal


def test_a_run_in_other_units_ends_with_both_networks_played(tmp_path):
    kind = UNITS["rewards x 1000"]
    words = ["train", "dqn", "--no-tuned", "--env", "CartPole-v1", "--total-env-steps", "2000",
             "--wrapper", f"{kind.__module__}:{kind.__name__}"]  # fmt: skip
    run = learning.run_seed(words, 0, tmp_path / "run")
    assert run["last"] >= 8_000 and run["best"] >= 8_000
