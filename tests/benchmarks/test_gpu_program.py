"""The programs of the device loops compile for a GPU, and wait for the host no more than known."""

from importlib import metadata

import pytest

from kytolly.benchmarks import gpu_compiler, gpu_dump, gpu_program, hlo, suite, tables
from kytolly.benchmarks.gpu_costs import GpuCosts
from kytolly.benchmarks.gpu_targets import TARGETS
from kytolly.benchmarks.suite import Options

# Waits of the host inside an iteration. A number may fall and never rise; the aim is 0.
MAX_WAITS: dict[str, int] = {}

with_compiler = pytest.mark.skipif(
    bool(gpu_compiler.why_unusable()), reason=gpu_compiler.why_unusable() or "usable"
)


@with_compiler
@pytest.mark.parametrize("row", gpu_dump.ROWS)
def test_a_program_compiles_for_an_h100_and_waits_no_more_than_known(row, tmp_path):
    counts = gpu_program.compile_and_count(gpu_dump.dump(row, tmp_path), "sm_90")
    assert counts["waits"] <= MAX_WAITS.get(row, 0)
    assert counts["launches"] > 20
    assert counts["buffer_bytes"] > 1_000


@with_compiler
def test_a_program_compiles_for_an_a100(tmp_path):
    counts = gpu_program.compile_and_count(gpu_dump.dump("ppo", tmp_path), "sm_80")
    assert counts["gpu"] == "NVIDIA A100-SXM4-80GB"
    assert counts["env_step"] > 1 and counts["update"] > 1
    assert len(counts["kernels"]) > counts["env_step"] + counts["update"]


def test_every_algorithm_with_a_device_loop_has_a_row():
    names = {row.algorithm for row in gpu_dump.ROWS.values()}
    assert names >= {"ppo", "dqn", "ddqn", "pqn", "c51", "qr-dqn", "iqn", "munchausen", "rainbow"}
    assert set(MAX_WAITS) <= set(gpu_dump.ROWS)


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
    assert GpuCosts(2.0, 10.0).microseconds(launches=178, waits=3) == 2 * 178 + 30


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
