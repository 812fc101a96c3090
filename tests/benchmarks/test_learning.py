"""Every seed trains in a process of its own, and its statistics are the ones that papers use."""

import dataclasses
import os

import numpy as np
import pytest

from kytolly.benchmarks import learning, play_last, suite
from kytolly.benchmarks.suite import Options
from kytolly.experiment import comparison, seed_statistics


@pytest.fixture
def watch():
    return suite.Watch(suite.progress_display())


def test_interquartile_mean_leaves_a_quarter_out_at_each_end():
    # Of 8 the 2 lowest and the 2 highest go: (3 + 4 + 5 + 6) / 4; the mean would be 15.75.
    assert seed_statistics.interquartile_mean([99, 2, 3, 4, 5, 6, 7, 0]) == 4.5
    low, high = seed_statistics.interval([99, 2, 3, 4, 5, 6, 7, 0])
    assert 0 <= low < 4.5 < high <= 99
    assert seed_statistics.interval([7.0]) == (7.0, 7.0)
    assert seed_statistics.interval([500.0] * 10) == (500.0, 500.0)


def test_curves_are_brought_to_one_grid_as_far_as_the_shortest_goes():
    steps, returns = comparison.common_grid(
        [[(10, 1.0), (20, 3.0), (30, 5.0)], [(10, 0.0), (25, 6.0)]]
    )
    np.testing.assert_array_equal(steps, [10, 20])
    np.testing.assert_allclose(returns, [[1.0, 3.0], [0.0, 4.0]])  # 0 + 6 * 10 / 15


def test_every_seed_is_a_run_of_its_own_and_a_failed_one_is_named(monkeypatch, tmp_path, watch):
    commands = []

    def run_module(module, arguments, core=None, environ=None):
        commands.append((module, list(arguments)))
        if module == "kytolly.benchmarks.play_last":
            return {"return_mean": -150.0}
        given = dict(zip(arguments[2::2], arguments[3::2], strict=False))
        if given["--seed"] == "2":
            raise suite.ChildFailed("out of memory")
        os.makedirs(given["--log-dir"])
        with open(os.path.join(given["--log-dir"], "metrics.csv"), "w") as file:
            file.write("env_steps,evaluation_return_mean\n10,-500.0\n20,\n30,-100.0\n")
        return {"evaluation": {"return_mean": -100.0 - int(given["--seed"])}}

    monkeypatch.setattr(suite, "run_module", run_module)
    picture = tmp_path / "new" / "curves.png"
    options = Options(env="Acrobot-v1", seeds=3, figure=str(picture))
    report = learning.learning_table(options, watch)
    (task,) = report.data["rows"]
    assert task["best"]["returns"] == [-101.0, -103.0]
    assert task["last"]["interquartile_mean"] == -150.0
    assert task["runs"][0]["evaluations"] == [(10, -500.0), (30, -100.0)]
    assert "Left out: Acrobot-v1, seed 2 failed: out of memory" in report.notes
    assert picture.read_bytes().startswith(b"\x89PNG")
    trained = [" ".join(arguments) for module, arguments in commands if module == suite.COMMAND]
    assert len(trained) == 3
    assert all("--total-env-steps 100000 --reward-threshold none" in line for line in trained)


@pytest.mark.parametrize(
    ("table", "options", "complaint"),
    [
        (learning.learning_table, Options(env="Acrobt-v1"), r"Did you mean 'Acrobot-v1'\?"),
        (learning.learning_table, Options(env="Pendulum-v1"), "expected one of CartPole-v1"),
        (learning.ppo_learning_table, Options(env="Pendulum"), r"Did you mean 'Pendulum-v1'\?"),
        (learning.ppo_learning_table, Options(figure="curves.text"), r"\.png"),
    ],
)
def test_what_cannot_be_done_is_refused_before_hours_are_spent(table, options, complaint, watch):
    with pytest.raises(ValueError, match=complaint):
        table(options, watch)


@pytest.mark.parametrize(
    "arguments, least, most",
    [
        (None, 8.0, 10.5),  # the pole falls after 8 to 10 pushes to one side
        ({"max_episode_steps": 5}, 5.0, 5.0),
    ],
)
def test_the_last_weights_play_the_newest_checkpoint(
    tmp_path, small_config, arguments, least, most
):
    from kytolly.agent.make_agent import make_agent
    from kytolly.environment.gym.wrapped import wrapped_source
    from kytolly.loop.env_runner import make_env_runner
    from kytolly.record.checkpoint import complete_checkpoint, write_checkpoint
    from kytolly.record.run_folder import RunFolder

    small_config = dataclasses.replace(small_config, env_kwargs=arguments)
    folder = RunFolder.create(tmp_path / "run", "unused")
    folder.write_config(small_config, "CartPole-v1", "device")
    runner = make_env_runner(small_config, wrapped_source("CartPole-v1", arguments, ()))
    agent = make_agent(small_config, runner.spec)
    trackables = {"agent": agent, **runner.loop(agent, None).trackables}
    (folder.path / "checkpoints").mkdir()
    weights = agent.policy.network.get_weights()
    assert weights[-1].shape == (2,)
    for env_steps, bias in ((10, [0.0, 0.0]), (400, [1e6, 0.0])):  # at last, always to the left
        agent.policy.set_weights([*weights[:-1], np.array(bias)])
        agent.env_steps.assign(env_steps)
        write_checkpoint(complete_checkpoint(trackables), folder.path, env_steps, 2, {}, None)
    played = play_last.play_last(str(folder.path), 16)
    assert (played["env_steps"], played["episodes"]) == (400, 16)
    assert played["weights"] == "last" and abs(played["return_iqm"] - played["return_mean"]) < 1.0
    assert least <= played["return_mean"] <= most


def test_returns_are_shown_with_three_digits_that_count():
    summary = seed_statistics.summary([0.712, 0.734, 0.718])
    assert seed_statistics.return_text(0.734) == "0.734"
    assert seed_statistics.return_text(-1234.56) == "-1,234.6"
    assert seed_statistics.interval_text(summary).startswith("0.7")
    assert seed_statistics.return_text(0.5, 475.0) == "0.5"
