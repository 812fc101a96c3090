"""The tables measure what they say: turns, pinning, arithmetic, absent contenders."""

import dataclasses
import json
import os
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from kytolly.benchmarks import (
    comparisons,
    competitors,
    core,
    dqn,
    loop_timing,
    optimizations,
    suite,
    tables,
)
from kytolly.benchmarks.competitors.settings import Settings
from kytolly.benchmarks.suite import Contender, Options
from kytolly.loop.learn import LoopMetrics

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
    return suite.Watch(suite.progress_display())


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A function that makes a contender whose program takes `seconds` for 100 env steps."""
    (tmp_path / "fake_side.py").write_text(textwrap.dedent(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"

    def contender(name, seconds=1.0, **more):
        return Contender(name, "fake_side", (name, str(log), str(seconds)), **more)

    contender.log = log
    return contender


# --- comparisons ---------------------------------------------------------------------------


def test_sides_take_turns_and_one_that_fails_costs_the_others_nothing(fake, watch):
    results, absent = suite.run_in_turns([fake("A"), fake("B"), fake("C")], 2, watch, None)
    # B fails at its first turn and gets no second one.
    assert fake.log.read_text() == "ABCAC"
    assert {name: len(runs) for name, runs in results.items()} == {"A": 2, "C": 2}
    assert absent == {"B": "failed: the reason"}
    assert results["A"][0]["gpu"] == "-1"  # on the CPU, whatever the machine has


def test_our_own_failure_is_an_error(fake, watch):
    with pytest.raises(RuntimeError, match="B: the reason"):
        suite.run_in_turns([fake("B"), fake("A")], 1, watch, None)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot pin processes here")
def test_a_pinned_side_has_one_core_and_its_own_arguments(fake):
    core = min(os.sched_getaffinity(0))
    pinned = suite.run_module("fake_side", fake("A", 2.5).arguments, core)
    assert pinned["cores"] == [core]
    assert pinned["wall_seconds"] == 2.5
    free = suite.run_module("fake_side", fake("A").arguments)
    assert free["cores"] == sorted(os.sched_getaffinity(0))


def test_ratios_are_their_time_over_ours(fake, watch):
    contenders = [fake("A", 2.0), fake("C", 6.0), fake("D", needs=("no_such_package",))]
    report = suite.comparison(
        "title", "env_steps", contenders, Options(repeats=1), watch, pinned=False
    )
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
    assert "PUREJAXRL_CHECKOUT" in comparisons.jax_contenders("dqn", "10")[1].why_absent()
    monkeypatch.setenv("PUREJAXRL_CHECKOUT", "/a/clone")
    assert comparisons.jax_contenders("dqn", "10")[1].arguments[-2:] == ("--checkout", "/a/clone")


# --- the command ---------------------------------------------------------------------------


def test_json_is_the_last_line_and_the_table_ends_with_its_command(monkeypatch, capsys):
    row = {"name": "us", "runs": [{"wall_seconds": 1.5}]}
    report = suite.Report(
        "A title", ["", "x"], [["us", "7"], ["them: kytolly[x]"]], [], {"rows": [row]}
    )
    monkeypatch.setattr(comparisons, "device", lambda options, watch: report)
    assert tables.run("device", repeats=2, seeds=4, as_json=True) == 0
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    found = json.loads(line)
    assert found["tables"]["device"]["rows"] == [row]
    assert found["tables"]["device"]["command"] == "kytolly benchmark device --repeats 2 --seeds 4"
    assert found["machine"]["cores"] >= 1
    assert "them: kytolly[x]" in printed.err
    assert printed.err.strip().endswith("kytolly benchmark device --repeats 2 --seeds 4")


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_has_its_function(name):
    assert callable(tables.table_function(name))


@pytest.mark.parametrize("name", ["optimizations", "optimisations"])
def test_optimizations_has_its_own_program_and_an_older_spelling(name, monkeypatch):
    given = []
    monkeypatch.setattr(optimizations, "main", lambda flags: given.append(flags) or 0)
    assert tables.run(name, as_json=True, quick=True) == 0
    assert given == [["--json", "--quick"]]


def test_a_table_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"Did you mean 'lunar-lander'\?"):
        tables.run("lunar-landr")


# --- our contender ------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def uncompiled():
    """Without XLA, but for the program that runs in a process of its own."""
    compiled = dqn.make_config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dqn, "make_config", lambda *a: dataclasses.replace(compiled(*a), xla=False))
        yield


@pytest.fixture(scope="module")
def device_run():
    return dqn.measure_loop(Settings(env_steps=200, seed=3, **TINY), "device", 1, True)


def test_the_device_loop_counts_its_own_steps_and_updates(device_run):
    assert device_run["env_steps"] == 200
    assert device_run["updates"] == 40  # one for every 5 env steps, none of the warm-up
    assert device_run["env_steps_per_second"] == pytest.approx(200 / device_run["wall_seconds"])


def test_the_clock_runs_after_compiling_and_warm_up_and_until_the_last_step(monkeypatch):
    happened = []

    class Loop:
        agent = None

        def run(self, env_steps):
            happened.append(env_steps)
            return LoopMetrics(*(np.zeros(()) for _ in LoopMetrics._fields))

        def close(self):
            happened.append("closed")

    class Span(competitors.Span):
        def start(self):
            happened.append("start")
            super().start()

        def stop(self):
            super().stop()
            happened.append("stop")

    counts = iter([(600, 100), (800, 140)])
    monkeypatch.setattr(core, "make_loop", lambda cfg, env, kind: Loop())
    monkeypatch.setattr(loop_timing, "Span", Span)
    monkeypatch.setattr(loop_timing, "counts", lambda agent: next(counts))
    work = loop_timing.Work("DQN", Settings(env_steps=200, **TINY), None, 550)
    result = loop_timing.measure(work, "device", 2, digests=False)
    assert happened == [0, 550, "start", 100, 100, "stop", "closed"]
    assert (result["env_steps"], result["updates"]) == (200, 40)


def test_digests_are_those_of_the_seed_whatever_the_calls(device_run):
    again = dqn.measure_loop(Settings(env_steps=200, seed=3, **TINY), "device", 3, True)
    other = dqn.measure_loop(Settings(env_steps=200, seed=4, **TINY), "device", 1, True)
    first, again, other = (run["digests"] for run in (device_run, again, other))
    state = {"weights", "target", "optimizer", "buffer", "counters"}
    assert set(first) == state | {"metrics"}
    assert {part for part in state if first[part] == again[part]} == state
    assert not {part for part in first if first[part] == other[part]} - {"counters"}


def test_the_host_loop_does_the_same_amount_of_work():
    result = dqn.measure_loop(Settings(env_steps=85, seed=3, **TINY), "host", 1, False)
    # One set of weights acts for 6 iterations of 5 env steps: 85 become 90.
    assert (result["env_steps"], result["updates"]) == (90, 18)
    assert "digests" not in result


def test_calls_share_the_steps_in_whole_iterations():
    settings = Settings(env_steps=101, **TINY)
    assert loop_timing.steps_per_call(settings, 1) == [105]  # 21 iterations of 5
    assert loop_timing.steps_per_call(settings, 2) == [50, 55]
    assert sum(loop_timing.steps_per_call(settings, 8)) == 105


def test_the_fused_update_runs_as_a_program_and_counts_by_its_optimizer():
    flags = ["--update-only", "--updates", "30", "--buffer", "1000", "--hidden", "8"]
    result = suite.run_module("kytolly.benchmarks.dqn", flags)
    assert (result["updates"], result["env_steps"]) == (30, None)
    assert result["microseconds_per_update"] == pytest.approx(result["wall_seconds"] / 30 * 1e6)
    assert result["settings"]["batch_size"] == 128
    assert np.isfinite(result["loss_last"])


def test_the_buffer_is_full_before_updates_are_timed():
    settings = Settings(**TINY)
    agent = core.make_learner(dqn.make_config(settings))
    assert int(agent.memory.size.numpy()) == settings.buffer
    columns = agent.memory.columns
    assert set(np.unique(columns.discount.numpy())) == {0.0, np.float32(settings.gamma)}
    assert len(np.unique(columns.obs.numpy(), axis=0)) == settings.buffer


@pytest.mark.parametrize("flags", [["--calls", "0"], ["--calls", "99", "--env-steps", "100"]])
def test_calls_that_hold_no_iteration_are_refused(flags, capsys):
    with pytest.raises(SystemExit) as stopped:
        dqn.main(flags)
    assert stopped.value.code == 2
    assert "--calls" in capsys.readouterr().err


def test_a_digest_sees_one_bit():
    one, other = tf.Variable([1.0, 2.0]), tf.Variable([1.0, np.nextafter(np.float32(2), 3)])
    first, second = (
        loop_timing.digest([loop_timing.bytes_of(variable)]) for variable in (one, other)
    )
    assert first != second
    assert first == loop_timing.digest([loop_timing.bytes_of(tf.Variable([1.0, 2.0]))])
