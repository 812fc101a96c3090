"""The tables measure what they say: turns, pinning, arithmetic, absent contenders."""

import itertools
import json
import os
import textwrap

import pytest

from kytolly.benchmarks import acting, comparisons, environments, optimizations, suite, tables
from kytolly.benchmarks.program import shared_fields
from kytolly.benchmarks.settings import PPOSettings
from kytolly.benchmarks.suite import Contender, Options, Report

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
    (tmp_path / "fake_program.py").write_text(textwrap.dedent(FAKE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"

    def contender(name, seconds=1.0, **more):
        return Contender(name, "fake_program", (name, str(log), str(seconds)), **more)

    contender.log = log
    return contender


# --- comparisons ---------------------------------------------------------------------------


def test_contenders_take_turns_and_one_that_fails_costs_the_others_nothing(fake, watch):
    results, absent = suite.run_in_turns([fake("A"), fake("B"), fake("C")], 2, watch, None)
    # B fails at its first turn and gets no second one.
    assert fake.log.read_text() == "ABCAC"
    assert {name: len(runs) for name, runs in results.items()} == {"A": 2, "C": 2}
    assert absent == {"B": "failed: the reason"}
    assert results["A"][0]["gpu"] == "-1"  # on the CPU, whatever the machine has


@pytest.mark.parametrize("order, all_ours", [("BA", False), ("AB", True)])
def test_our_own_failure_is_an_error(order, all_ours, fake, watch):
    with pytest.raises(RuntimeError, match="B: the reason"):
        suite.run_in_turns([fake(name) for name in order], 1, watch, None, all_ours=all_ours)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot pin processes here")
def test_a_pinned_contender_has_one_core_and_its_own_arguments(fake):
    core = min(os.sched_getaffinity(0))
    pinned = suite.run_module("fake_program", fake("A", 2.5).arguments, core)
    assert pinned["cores"] == [core]
    assert pinned["wall_seconds"] == 2.5
    free = suite.run_module("fake_program", fake("A").arguments)
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
    medians = suite.medians(runs, "env_steps")
    assert medians["env_steps_per_second"] == 5.0  # the middle of 10, 5 and 2.5; their mean is 5.8
    assert (medians["slowest_per_second"], medians["fastest_per_second"]) == (2.5, 10.0)
    assert medians["wall_microseconds"] == 200_000.0
    assert medians["cpu_microseconds"] == 400_000.0
    assert medians["compile_seconds"] == 7.0


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
    summary = json.loads(line)
    assert summary["tables"]["device"]["rows"] == [row]
    assert (
        summary["tables"]["device"]["command"] == "kytolly benchmark device --repeats 2 --seeds 4"
    )
    assert summary["machine"]["cores"] >= 1
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


# --- what the tables ask for ---------------------------------------------------------------


def asked(contender):
    """The settings of PPO that a contender's program reads from its command line."""
    words = contender.arguments[1:]
    flags = {word[2:].replace("-", "_"): value for word, value in itertools.pairwise(words)}
    return PPOSettings(**{n: int(v) for n, v in shared_fields(PPOSettings, flags).items()})


@pytest.mark.parametrize(
    "table, names, pinned, settings",
    [
        ("ppo", ["Kytolly", "Stable-Baselines3", "rejax", "PureJaxRL"], True, {}),
        ("ppo_wide", ["Kytolly", "rejax", "PureJaxRL"], True,
         {"num_envs": 2048, "num_steps": 16, "minibatches": 32}),
        ("ppo_host", ["Kytolly", "Stable-Baselines3"], False, {"num_envs": 8}),
        ("ppo_recurrent",
         ["Kytolly, GRU", "PureJaxRL, GRU", "Kytolly, LSTM", "RecurrentPPO, LSTM"], True, {}),
        ("ppo_recurrent_host", ["Kytolly, LSTM", "RecurrentPPO, LSTM"], True, {}),
    ],
)  # fmt: skip
def test_a_table_asks_every_contender_for_the_same(
    table, names, pinned, settings, watch, monkeypatch
):
    calls = []

    def comparison(title, unit, contenders, options, watch, pinned=True):
        calls.append((contenders, pinned))
        return Report(title, [], [[""]], [], {"rows": [{"compile_seconds": 1.0}]})

    monkeypatch.setattr(comparisons, "comparison", comparison)
    getattr(comparisons, table)(Options(quick=True), watch)
    ((contenders, was_pinned),) = calls
    assert was_pinned == pinned
    assert [contender.name for contender in contenders][: len(names)] == names
    assert {asked(contender) for contender in contenders} == {
        PPOSettings(env_steps=400, **settings)
    }


def test_the_compile_ratio_is_our_time_over_theirs():
    runs = [{"versions": {"jaxlib": "1.2", "flax": "3"}}]
    data = [
        {"name": "Kytolly", "compile_seconds": 2.0, "runs": [{"versions": {"tensorflow": "9"}}]},
        {"name": "them", "compile_seconds": 8.0, "runs": runs},
        {"name": "absent", "missing": "why"},
    ]
    rows = [["Kytolly", "1"], ["them", "2"], ["absent: why"]]
    report = comparisons.with_compile_ratio(Report("t", ["", "x"], rows, ["n"], {"rows": data}))
    assert report.rows == [["Kytolly", "1", ""], ["them", "2", "0.25x"], ["absent: why"]]
    assert report.data["rows"][1]["kytolly_compile_ratio"] == 0.25
    assert "tensorflow 9, jaxlib 1.2" in report.notes[-1]


def test_the_largest_fall_is_counted_from_the_best_onwards():
    # Best 10 at place 1; 4 at place 0 came before it; after it 9 and 8, so 2 of 10 are lost.
    assert environments.largest_fall([4.0, 10.0, 9.0, 8.0, 8.5]) == (1, pytest.approx(0.2), 3)
    assert environments.largest_fall([1.0, 2.0]) == (1, 0.0, None)


def test_an_agent_with_a_memory_gets_back_the_state_that_it_gave():
    class Agent:
        def initial_state(self):
            return 0

        def act(self, obs, state):
            return obs + state, state + 1

    act = acting.remembering(Agent())
    assert [act(10), act(10), act(10)] == [10, 11, 12]
