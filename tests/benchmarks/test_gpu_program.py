"""The programs of the device loops compile for a GPU, and wait for the host no more than known."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from kytolly.agent.algorithms import ALGORITHMS
from kytolly.benchmarks import gpu_compiler, gpu_dump, gpu_program, hlo, suite, tables
from kytolly.benchmarks.gpu_targets import TARGETS
from kytolly.benchmarks.suite import Options
from kytolly.machine import gpu_costs
from tests.helpers.cases import learning

with_compiler = pytest.mark.skipif(
    bool(gpu_compiler.why_unusable()), reason=gpu_compiler.why_unusable() or "usable"
)


@with_compiler
@pytest.mark.parametrize("row", gpu_dump.ROWS)
def test_a_program_compiles_for_an_h100_and_launches_and_waits_no_more_than_known(row, tmp_path):
    counts = gpu_program.compile_and_count(gpu_dump.dump(row, tmp_path), "sm_90")
    known = gpu_costs.PROGRAMS[row]  # its numbers may fall and never rise; the aim is no wait
    assert counts["waits"] <= known.waits
    assert 20 < counts["launches"] <= known.launches
    assert counts["env_steps"] == known.env_steps
    assert counts["buffer_bytes"] > 1_000


@with_compiler
def test_a_program_compiles_for_an_a100(tmp_path):
    counts = gpu_program.compile_and_count(gpu_dump.dump("ppo", tmp_path), "sm_80")
    assert counts["gpu"] == "NVIDIA A100-SXM4-80GB"
    assert counts["env_step"] > 1 and counts["update"] > 1
    assert len(counts["kernels"]) > counts["env_step"] + counts["update"]


@with_compiler
@pytest.mark.parametrize("row", ["ppo", learning("dqn-10-envs")])
def test_a_program_of_two_gpus_compiles_with_its_exchanges_inside(row, tmp_path):
    counts = gpu_program.compile_and_count(gpu_dump.dump(row, tmp_path, devices=2), "sm_90")
    text = Path(counts["hlo"]).read_text()
    sums = re.findall(r"= (\w+)\[([\d,]+)\]\S* all-reduce(?:-start)?\(", text)
    # The rollout of all environments as words, the episodes that ended, and in each update the
    # gradient with the metrics and, of Q-learning, the errors of the 128 rows of a batch, whose
    # observations [4] come from the device that has them.
    of_row = {
        "ppo": {("s32", 512 * 13), ("f32", 3), ("f32", 9_155 + 7)},
        "dqn-10-envs": {("s32", 120), ("f32", 6), ("f32", 10_934 + 4 + 128), ("s32", 2 * 128 * 4)},
    }
    assert {(kind, int(size)) for kind, size in sums} == of_row[row]
    assert counts["env_steps"] == gpu_costs.PROGRAMS[row].env_steps


def test_every_algorithm_with_a_device_loop_has_a_row():
    assert {row.algorithm for row in gpu_dump.ROWS.values()} == set(ALGORITHMS)
    assert set(gpu_costs.PROGRAMS) == set(gpu_dump.ROWS)


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (Options(algorithms=("ranker",)), "no device loop"),
        (Options(algorithms=("dqm",)), "did you mean|Did you mean"),
        (Options(gpu="sm_10"), "sm_90 .*sm_80"),
    ],
)
def test_what_cannot_be_compiled_is_refused_in_one_line(options, word):
    with pytest.raises(ValueError, match=word) as refusal:
        gpu_program.gpu_program(options, suite.Watch(suite.progress_display()))
    assert "\n" not in str(refusal.value)


def test_a_missing_extra_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(gpu_compiler, "is_installed", lambda name: name != gpu_compiler.PLUGIN)
    assert 'pip install "kytolly[gpu-compile]"' in gpu_program.why_unknown(Options())


def test_another_version_of_the_plugin_is_refused(monkeypatch):
    versions = {"jaxlib": "0.10.2", "jax-cuda12-plugin": "0.10.1", "jax-cuda12-pjrt": "0.10.2"}
    monkeypatch.setattr(gpu_compiler, "is_installed", lambda name: True)
    monkeypatch.setattr(metadata, "version", versions.__getitem__)
    reason = gpu_compiler.why_unusable()
    assert "jax-cuda12-plugin 0.10.1" in reason
    assert reason.endswith("pip install jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2")


def test_only_gpu_program_takes_algorithms():
    with pytest.raises(ValueError, match="takes no algorithms"):
        tables.run("device", algorithms=["dqn"])


# --- costs ---------------------------------------------------------------------------------


def test_the_prediction_adds_launches_and_waits():
    costs = gpu_costs.GpuCosts(launch_microseconds=2.0, wait_microseconds=10.0)
    assert costs.milliseconds(launches=178, waits=3) == 0.386  # 2 x 178 + 30 microseconds


def test_a_gpu_pays_from_as_many_environments_as_it_is_slower(monkeypatch):
    sizes = {"ppo": gpu_costs.ProgramSize(launches=3000, waits=0, num_envs=4, env_steps=512)}
    monkeypatch.setattr(gpu_costs, "PROGRAMS", sizes)
    costs = gpu_costs.GpuCosts(launch_microseconds=4.0)
    # 3,000 x 4 = 12 ms against 1.5 ms: 8 times as many environments.
    assert gpu_costs.when_a_gpu_pays("ppo", 1.5, costs).endswith("or more than 32 environments")
    assert gpu_costs.when_a_gpu_pays("ppo", 12.5, costs).endswith("use the GPU")
    assert [gpu_costs.counted(number, "wait") for number in (1, 6)] == ["1 wait", "6 waits"]


def test_kernels_are_named_by_loop():
    inner = hlo.Block("loop", "b", 4, [hlo.Kernel("fusion.1", "fusion", "f32[2]", "add")])
    outer = hlo.Block("loop", "a", None, [hlo.Kernel("copy.1", "copy", "f32[1]", "")], [inner])
    assert gpu_program.named_kernels(outer) == [
        "iteration: copy.1 f32[1]",
        "iteration > loop x 4: fusion.1 f32[2] add",
    ]


def test_the_descriptions_of_the_gpus_name_their_capability():
    for name, target in TARGETS.items():
        major, minor = name.removeprefix("sm_")
        assert f"cuda_compute_capability {{ major: {major} minor: {minor} }}" in target.description


# --- the table -----------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_library_and_its_time_where_there_is_a_gpu(
    monkeypatch, tmp_path
):
    numbers = {"launches": 300, "waits": 2, "env_step": None, "update": 37, "copies": 5}
    numbers |= {"buffer_bytes": 2**20, "formula": "300", "kernels": ["iteration: fusion.1"]}
    made = []

    def compiled(side, gpu):
        if side.dump.name == "PureJaxRL":
            raise suite.ChildFailed("the reason")
        made.append(side)
        launches = 300 if side.is_ours else 600
        shared = {"compiler": "jaxlib 0", "measured_milliseconds": 1.5}
        return {**numbers, **shared, "launches": launches}

    monkeypatch.setenv("PUREJAXRL_CHECKOUT", str(tmp_path))
    monkeypatch.setattr(gpu_program, "compiled", compiled)
    monkeypatch.setattr(gpu_program, "nvidia_gpu_plausible", lambda: True)
    monkeypatch.setattr(suite.Contender, "why_absent", lambda self: "")
    monkeypatch.setattr(gpu_program, "why_unusable", lambda: "")
    options = Options(algorithms=("ppo",), kernels=True, launch_microseconds=10.0)
    report = gpu_program.gpu_program(options, suite.Watch(suite.progress_display()))
    wide = report.rows[4:7]
    assert [row[0] for row in wide] == [
        "ppo: CartPole, 2,048 envs x 16 steps, 128 updates",
        "  rejax",
        "  PureJaxRL: failed: the reason",
    ]
    # 600 launches of 10 microseconds and 2 waits of 20: 6.04 ms.
    assert wide[1][1:] == ["600", "", "37", "2", "5", "1.0", "6.04", "2.00x", "1.50"]
    assert report.columns[-1] == "ms here"
    assert "    iteration: fusion.1" in report.notes
    words = ("ppo", "--env-steps", "200000", "--num-envs", "2048", "--num-steps", "16")
    assert made[3].timed.arguments == (*words, "--minibatches", "32")


def test_the_time_on_the_gpu_is_that_of_an_iteration(monkeypatch, tmp_path):
    seen = []

    def run_module(module, arguments, core=None, environ=None):
        seen.append((module, environ))
        return {"wall_seconds": 2.0, "env_steps": 1_000}

    monkeypatch.setattr(suite, "run_module", run_module)
    ours = gpu_program.sides("dqn", str(tmp_path))[0]
    assert gpu_program.measured_milliseconds(ours, 10) == 20.0
    assert seen == [("kytolly.benchmarks.loops", None)]  # the GPU is not hidden
