import contextlib
import json
import multiprocessing

import pytest

from kytolly.benchmarks import optimizations
from tests.helpers import fake_nvml


def test_the_benchmark_ends_with_its_figures_and_json(capsys):
    assert optimizations.main(["--quick", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)  # standard output holds nothing else
    names = {row["name"] for row in result["rows"]}
    assert names > {"device buffer", "target sync", "jit_compile", "fused updates", "whole loop"}
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["off_ms"] / row["on_ms"])
        assert row["verdict"].startswith("yes") == (row["ratio"] >= 1.05)
    complete, throughput = captured.err.splitlines()[-2:]
    assert complete == f"✅ Benchmark complete: {result['ms_per_iteration']:.3f} ms/iteration"
    assert throughput == f"Throughput: {result['iterations_per_second']:.1f} iterations/second"


def test_without_a_gpu_the_loop_is_set_beside_the_prediction(monkeypatch):
    row = optimizations.Row("whole loop", "env step", "", "", 0.02, 1.0, 0.02, 1.0)
    monkeypatch.setattr(optimizations.hardware, "nvidia_gpu_plausible", lambda: False)
    assert "0.20 ms on this CPU" in optimizations.gpu_advice([row])  # 10 env steps
    monkeypatch.setattr(optimizations.hardware, "nvidia_gpu_plausible", lambda: True)
    assert optimizations.gpu_advice([row]).startswith("dqn: 0.20 ms an iteration here")


def test_a_gpu_is_watched_while_the_loop_runs(monkeypatch):
    assert optimizations.gpu_utilization(0.0) is None
    fake_nvml.install(monkeypatch, fake_nvml.FakeGpu("GPU-1", utilization=37))
    assert optimizations.gpu_utilization(0.0) == 37.0


@pytest.mark.learning
def test_the_long_benchmark_compares_widths_and_environments_in_processes():
    before = set(multiprocessing.active_children())
    with contextlib.ExitStack() as stack:
        found = [optimizations.width_case(True), optimizations.async_case(stack)]
        rows = [optimizations.measure_case(case, 1, 0.0) for case in found]
        assert len(set(multiprocessing.active_children()) - before) == optimizations.SLOW_ENVS
    assert not set(multiprocessing.active_children()) - before
    assert [row.unit for row in rows] == ["update", "env step"]
    assert (rows[0].on_label, rows[0].off_label) == ("2x256 units", "2x512 units")
    # One after the other, each step takes the thread at least its millisecond.
    assert rows[1].name == "async_envs, 1 ms a step" and rows[1].off_cpu_ms >= 1


def test_a_wrong_flag_of_the_benchmark_is_one_line_and_status_2(capsys):
    with pytest.raises(SystemExit, match="2"):
        optimizations.main(["--jsn"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "--jsn; expected --json" in line
