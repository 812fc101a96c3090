"""The tables measure what they say: turns, pinning, arithmetic, and what happens without a side."""

import importlib
import json
import os
import textwrap
import time

import numpy as np
import pytest
import tensorflow as tf

from kytolly.benchmarks import comparisons, dqn, learning, learning_curves, own_loop, start, suite
from kytolly.benchmarks.competitors import Settings
from kytolly.benchmarks.suite import Options, Side

TINY = {
    "batch_size": 8,
    "train_interval": 5,
    "buffer": 300,
    "hidden": (8,),
    "target_sync_updates": 4,
    "warmup_env_steps": 50,
}
FAKE = """
    import json, os, sys
    name, log, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with open(log, "a") as file:
        file.write(name)
    if name == "B":
        print("first line", file=sys.stderr)
        sys.exit("the reason")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    print("not the result")
    print(json.dumps({"env_steps": 100, "wall_seconds": seconds, "cpu_seconds": seconds / 2,
                      "compile_seconds": 3.0, "cores": cores, "gpu": os.environ.get(
                      "CUDA_VISIBLE_DEVICES")}))
"""


@pytest.fixture
def watch():
    return suite.Watch(suite.watching())


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A function that makes a side whose program takes `seconds` for 100 env steps."""
    (tmp_path / "fake_side.py").write_text(textwrap.dedent(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"

    def side(name, seconds=1.0, **more):
        return Side(name, "fake_side", (name, str(log), str(seconds)), **more)

    side.log = log
    return side


# --- comparisons ---------------------------------------------------------------------------


def test_sides_take_turns_and_one_that_fails_costs_the_others_nothing(fake, watch):
    results, absent = suite.interleaved([fake("A"), fake("B"), fake("C")], 2, watch, None)
    # B fails at its first turn and gets no second one.
    assert fake.log.read_text() == "ABCAC"
    assert {name: len(runs) for name, runs in results.items()} == {"A": 2, "C": 2}
    assert absent == {"B": "failed: the reason"}
    assert results["A"][0]["gpu"] == "-1"  # on the CPU, whatever the machine has


def test_our_own_failure_is_an_error(fake, watch):
    with pytest.raises(RuntimeError, match="B: the reason"):
        suite.interleaved([fake("B"), fake("A")], 1, watch, None)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot pin processes here")
def test_a_pinned_side_has_one_core_and_its_own_arguments(fake):
    core = min(os.sched_getaffinity(0))
    pinned = suite.child("fake_side", fake("A", 2.5).arguments, core)
    assert pinned["cores"] == [core]
    assert pinned["wall_seconds"] == 2.5
    free = suite.child("fake_side", fake("A").arguments)
    assert free["cores"] == sorted(os.sched_getaffinity(0))


def test_ratios_are_their_time_over_ours(fake, watch):
    sides = [fake("A", 2.0), fake("C", 6.0), fake("D", needs=("no_such_package",))]
    report = suite.compared("title", "env_steps", sides, Options(repeats=1), watch, pinned=False)
    ours, theirs, missing = report.data["rows"]
    assert ours["env_steps_per_second"] == 50.0  # 100 in 2 s
    assert theirs["kytolly_wall_ratio"] == 3.0
    assert theirs["cpu_microseconds"] == 30_000.0  # 3 s of CPU time for 100 env steps
    assert missing == {"name": "D", "missing": 'pip install "kytolly[benchmark]"'}
    assert report.rows[2] == ['D: pip install "kytolly[benchmark]"']
    assert report.rows[1][-2:] == ["3.00x", "3.00x"]
    assert len(report.columns) == len(report.rows[1])
    assert fake.log.read_text() == "AC"


def test_medians_are_of_the_time_for_one_step():
    runs = [
        {"env_steps": 10, "wall_seconds": w, "cpu_seconds": 2 * w, "compile_seconds": c}
        for w, c in [(1.0, 5.0), (4.0, 9.0), (2.0, 7.0)]
    ]
    found = suite.medians(runs, "env_steps")
    assert found["env_steps_per_second"] == 5.0  # the middle of 10, 5 and 2.5; their mean is 5.8
    assert (found["slowest_per_second"], found["fastest_per_second"]) == (2.5, 10.0)
    assert found["wall_microseconds"] == 200_000.0
    assert found["cpu_microseconds"] == 400_000.0
    assert found["compile_seconds"] == 7.0


def test_purejaxrl_is_asked_for_by_name(monkeypatch):
    monkeypatch.delenv("PUREJAXRL_CHECKOUT", raising=False)
    assert "PUREJAXRL_CHECKOUT" in comparisons.jax_loops("dqn", "10")[1].why_absent()
    monkeypatch.setenv("PUREJAXRL_CHECKOUT", "/a/clone")
    assert comparisons.jax_loops("dqn", "10")[1].arguments[-2:] == ("--checkout", "/a/clone")


# --- the command ---------------------------------------------------------------------------


def test_json_is_the_last_line_and_the_table_ends_with_its_command(monkeypatch, capsys):
    row = {"name": "us", "runs": [{"wall_seconds": 1.5}]}
    report = suite.Report("A title", ["", "x"], [["us", "7"], ["them: why"]], [], {"rows": [row]})
    monkeypatch.setattr(comparisons, "device", lambda options, watch: report)
    assert suite.run("device", repeats=2, seeds=4, as_json=True) == 0
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    found = json.loads(line)
    assert found["tables"]["device"]["rows"] == [row]
    assert found["tables"]["device"]["command"] == "kytolly benchmark device --repeats 2 --seeds 4"
    assert found["machine"]["cores"] >= 1
    assert "them: why" in printed.err
    assert printed.err.strip().endswith("kytolly benchmark device --repeats 2 --seeds 4")


@pytest.mark.parametrize("name", suite.TABLES)
def test_every_table_has_its_function(name):
    module, function = suite.TABLES[name]
    assert callable(getattr(importlib.import_module(f"benchmarks.{module}"), function))


def test_a_table_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"Did you mean lunar-lander\?"):
        suite.run("lunar-landr")


# --- our side ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def device_run():
    return dqn.measure_loop(Settings(env_steps=200, seed=3, **TINY), "device", 1, True)


def test_the_device_loop_counts_its_own_steps_and_updates(device_run):
    assert device_run["env_steps"] == 200
    assert device_run["updates"] == 40  # one for every 5 env steps, none of the warm-up
    assert device_run["env_steps_per_second"] == pytest.approx(200 / device_run["wall_seconds"])
    # Compiling costs seconds and 200 steps do not: the figure would show if it were included.
    assert device_run["compile_seconds"] > device_run["wall_seconds"]


def test_digests_are_those_of_the_seed_whatever_the_calls(device_run):
    again = dqn.measure_loop(Settings(env_steps=200, seed=3, **TINY), "device", 3, True)
    other = dqn.measure_loop(Settings(env_steps=200, seed=4, **TINY), "device", 1, True)
    first, again, other = (run["digests"] for run in (device_run, again, other))
    state = {"weights", "target", "optimizer", "buffer", "counters"}
    assert set(first) == state | {"metrics"}
    assert {part for part in state if first[part] == again[part]} == state
    assert not {part for part in first if first[part] == other[part]} - {"counters"}


def test_the_host_loop_does_the_same_amount_of_work():
    result = dqn.measure_loop(Settings(env_steps=100, seed=3, **TINY), "host", 1, False)
    assert (result["env_steps"], result["updates"]) == (100, 20)
    assert "digests" not in result


def test_calls_share_the_steps_in_whole_intervals():
    work = own_loop.Work("DQN", Settings(env_steps=101, **TINY), None, 5, 0, dqn.state, "")
    assert own_loop.spread(work, 1) == [105]  # 21 intervals of 5
    assert own_loop.spread(work, 2) == [50, 55]
    assert sum(own_loop.spread(work, 8)) == 105


def test_the_fused_update_runs_as_a_program_and_counts_by_its_optimizer():
    flags = ["--update-only", "--updates", "30", "--buffer", "1000", "--hidden", "8"]
    result = suite.child("benchmarks.dqn", flags)
    assert (result["updates"], result["env_steps"]) == (30, None)
    assert result["microseconds_per_update"] == pytest.approx(result["wall_seconds"] / 30 * 1e6)
    assert result["settings"]["batch_size"] == 128
    assert np.isfinite(result["loss_last"])


def test_the_buffer_is_full_before_updates_are_timed():
    from kytolly.agent.factory import make_agent
    from kytolly.environment.tensor.cartpole import CartPole

    settings = Settings(**TINY)
    agent = make_agent(dqn.make_config(settings), CartPole.spec)
    dqn.fill(agent, settings)
    assert int(agent.replay.size.numpy()) == settings.buffer
    columns = agent.replay.columns
    assert set(np.unique(columns.discount.numpy())) == {0.0, np.float32(settings.gamma)}
    assert len(np.unique(columns.obs.numpy(), axis=0)) == settings.buffer


@pytest.mark.parametrize("flags", [["--calls", "0"], ["--calls", "99", "--env-steps", "100"]])
def test_calls_that_hold_no_interval_are_refused(flags, capsys):
    with pytest.raises(SystemExit) as stopped:
        dqn.main(flags)
    assert stopped.value.code == 2
    assert "--calls" in capsys.readouterr().err


# --- learning ------------------------------------------------------------------------------


def test_interquartile_mean_leaves_a_quarter_out_at_each_end():
    # Of 8 the 2 lowest and the 2 highest go: (3 + 4 + 5 + 6) / 4; the mean would be 15.75.
    assert learning.interquartile_mean([99, 2, 3, 4, 5, 6, 7, 0]) == 4.5
    low, high = learning.interval([99, 2, 3, 4, 5, 6, 7, 0])
    assert 0 <= low < 4.5 < high <= 99
    assert learning.interval([7.0]) == (7.0, 7.0)
    assert learning.interval([500.0] * 10) == (500.0, 500.0)


def test_every_seed_is_a_run_of_its_own_and_a_failed_one_is_named(monkeypatch, tmp_path, watch):
    commands = []

    def child(module, arguments, core=None, environ=None):
        commands.append((module, list(arguments)))
        if module == "benchmarks.learning":
            return {"return_mean": -150.0}
        given = dict(zip(arguments[2::2], arguments[3::2], strict=False))
        if given["--seed"] == "2":
            raise suite.ChildFailed("out of memory")
        os.makedirs(given["--log-dir"])
        with open(os.path.join(given["--log-dir"], "metrics.csv"), "w") as file:
            file.write("env_steps,evaluation_return_mean\n10,-500.0\n20,\n30,-100.0\n")
        return {"evaluation": {"return_mean": -100.0 - int(given["--seed"])}}

    monkeypatch.setattr(suite, "child", child)
    picture = tmp_path / "new" / "curves.png"
    options = Options(env="Acrobot-v1", seeds=3, figure=str(picture))
    report = learning.learning_table(options, watch)
    (task,) = report.data["rows"]
    assert task["best"]["returns"] == [-101.0, -103.0]
    assert task["last"]["interquartile_mean"] == -150.0
    assert task["runs"][0]["evaluations"] == [(10, -500.0), (30, -100.0)]
    assert "Left out: Acrobot-v1, seed 2 failed: out of memory" in report.notes
    assert picture.read_bytes().startswith(b"\x89PNG")
    trained = [" ".join(arguments) for module, arguments in commands if module == "cli"]
    assert len(trained) == 3
    assert all("--total-env-steps 100000 --reward-threshold none" in line for line in trained)


def test_curves_are_brought_to_one_grid_as_far_as_the_shortest_goes():
    steps, returns = learning_curves.on_one_grid(
        [[(10, 1.0), (20, 3.0), (30, 5.0)], [(10, 0.0), (25, 6.0)]]
    )
    np.testing.assert_array_equal(steps, [10, 20])
    np.testing.assert_allclose(returns, [[1.0, 3.0], [0.0, 4.0]])  # 0 + 6 * 10 / 15


def test_ppo_trains_each_task_for_as_long_as_its_settings_say(monkeypatch, watch):
    monkeypatch.setitem(learning.tuned_settings.__globals__["PPO"]["Pendulum-v1"],
                        "total_env_steps", 12_345)  # fmt: skip
    commands = []

    def child(module, arguments, core=None, environ=None):
        commands.append(" ".join(arguments))
        raise suite.ChildFailed("only its command line is looked at")

    monkeypatch.setattr(suite, "child", child)
    monkeypatch.setattr(
        learning, "PPO_HALF_CHEETAH", learning.PPO_HALF_CHEETAH._replace(needs=None)
    )
    report = learning.ppo_learning_table(Options(seeds=1, env="Pendulum-v1"), watch)
    assert report.rows == [
        ["Pendulum-v1, ppo, 12,345 env steps", "best", "every seed failed", "", "", "",
         "-172"],
        ["", "last", "every seed failed", "", "", "", ""],
    ]  # fmt: skip
    assert report.notes[0].endswith("Goal: rl-baselines3-zoo, one run.")
    learning.ppo_half_cheetah_table(Options(seeds=1), watch)
    assert commands[0].startswith("train ppo --env Pendulum-v1 --loop auto --seed 1 --total-env-st")
    assert "--total-env-steps 12345 " in commands[0]
    assert "train ppo --env HalfCheetah-v5 --loop host" in commands[1]
    assert "--total-env-steps 1000000 " in commands[1]


@pytest.mark.parametrize(
    ("table", "options", "complaint"),
    [
        (learning.learning_table, Options(env="Acrobt-v1"), r"Did you mean Acrobot-v1\?"),
        (learning.learning_table, Options(env="Pendulum-v1"), "expected one of CartPole-v1"),
        (learning.ppo_learning_table, Options(env="Pendulum"), r"Did you mean Pendulum-v1\?"),
        (learning.ppo_learning_table, Options(figure="curves.text"), r"\.png"),
    ],
)
def test_what_cannot_be_done_is_refused_before_hours_are_spent(table, options, complaint, watch):
    with pytest.raises(ValueError, match=complaint):
        table(options, watch)


def test_an_environment_that_is_not_installed_is_a_row(monkeypatch, watch):
    task = learning.LUNAR_LANDER._replace(needs=("no_such_package", 'pip install "kytolly[box2d]"'))
    monkeypatch.setattr(learning, "LUNAR_LANDER", task)
    report = learning.lunar_lander_table(Options(seeds=1), watch)
    assert report.rows == [['LunarLander-v3: pip install "kytolly[box2d]"']]


def test_half_cheetah_says_which_extra_brings_it():
    assert learning.PPO_HALF_CHEETAH.needs == ("mujoco", 'pip install "kytolly[mujoco]"')


def test_the_last_weights_come_from_the_newest_checkpoint(tmp_path, small_config):
    from kytolly.agent.factory import make_agent
    from kytolly.loop.world import choose_world
    from kytolly.record.checkpoint import complete_checkpoint
    from kytolly.record.run_folder import RunFolder

    folder = RunFolder.create(tmp_path / "run", "unused")
    folder.write_config(small_config, "CartPole-v1", "device")
    world = choose_world(small_config, "CartPole-v1")
    agent = make_agent(small_config, world.spec)
    trackables = {"agent": agent, **world.loop(agent, None).trackables}
    (folder.path / "checkpoints").mkdir()
    output = agent.policy.online.trainable_variables[-1]
    assert output.shape == (2,)
    for env_steps, bias in ((10, [0.0, 0.0]), (400, [1e6, 0.0])):  # at last, always to the left
        output.assign(bias)
        agent.env_steps.assign(env_steps)
        path = folder.path / "checkpoints" / f"ckpt-{env_steps}"
        complete_checkpoint(trackables).write(str(path))
    found = learning.play_last(str(folder.path), 16)
    assert (found["env_steps"], found["episodes"]) == (400, 16)
    assert 8.0 <= found["return_mean"] <= 10.5  # the pole falls after 8 to 10 pushes to one side


# --- start ---------------------------------------------------------------------------------


def fake_training(stopped_by, monkeypatch):
    def child(module, arguments, core=None, environ=None):
        run_dir = arguments[arguments.index("--log-dir") + 1]
        os.makedirs(run_dir)
        time.sleep(0.1)
        with open(os.path.join(run_dir, "best.keras"), "w") as file:
            file.write("x")
        time.sleep(0.3)
        fake_training.environ = environ
        return {
            "stopped_by": stopped_by,
            "compile_seconds": 1.0,
            "env_steps": 5,
            "evaluation": {"return_mean": 480.0},
        }

    monkeypatch.setattr(suite, "child", child)


def test_solved_is_when_the_best_weights_were_written(monkeypatch, watch):
    fake_training("reward_threshold", monkeypatch)
    report = start.start_table(Options(seeds=3), watch)
    assert 0.05 < report.data["solved"] < 0.35 < report.data["exited"]
    assert [run["seed"] for run in report.data["warm"]] == [1, 2, 3]
    assert len(report.rows) == 5  # an empty cache, three seeds, their median
    assert "kytolly-start-" in fake_training.environ["KYTOLLY_COMPILE_CACHE"]


def test_a_start_that_does_not_solve_it_is_endless(monkeypatch, tmp_path):
    fake_training("total_env_steps", monkeypatch)
    failed = start.timed_start(tmp_path, 1, start.FLAGS)
    assert (failed["solved"], failed["exited"]) == (None, None)
    assert start.median_of([3.0, None, 1.0]) == 3.0  # of 1, 3 and endless
    assert start.median_of([None, None, 1.0]) is None


def test_a_digest_sees_one_bit():
    one, other = tf.Variable([1.0, 2.0]), tf.Variable([1.0, np.nextafter(np.float32(2), 3)])
    first, second = (own_loop.digest([own_loop.bytes_of(variable)]) for variable in (one, other))
    assert first != second
    assert first == own_loop.digest([own_loop.bytes_of(tf.Variable([1.0, 2.0]))])
