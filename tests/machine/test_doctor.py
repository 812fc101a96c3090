import importlib.metadata
import json
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from kytolly.machine import doctor, facts, hardware
from kytolly.machine.compile_cache import cache_folder
from kytolly.machine.doctor import Check
from tests.helpers.fake_nvml import FakeGpu, install

BUILD = {
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_89", "compute_90"],
}


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    monkeypatch.setenv("KYTOLLY_COMPILE_CACHE", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def gpu(monkeypatch):
    """One mocked GPU whose compute capability a test may change."""
    details = {"device_name": "NVIDIA L4", "compute_capability": (8, 9)}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: BUILD)
    monkeypatch.setattr(hardware, "nvidia_gpu_plausible", lambda: True)
    return details


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: BUILD)


def test_every_check_has_a_finding_and_every_problem_one_thing_to_do():
    checks = doctor.diagnose()
    names = [check.name for check in checks]
    assert {"python", "backend", "gpu", "cuda", "precision", "xla", "compile cache"} <= set(names)
    assert len(set(names)) == len(names)
    for check in checks:
        assert check.status in ("ok", "warn", "fail")
        assert check.finding
        assert check.advice or check.status == "ok"


def test_json_is_one_line_and_the_exit_status_says_whether_something_failed(monkeypatch, capsys):
    good, bad = Check("a", "ok", "fine"), Check("b", "fail", "broken", "mend it")
    monkeypatch.setattr(doctor, "diagnose", lambda more: [good])
    assert doctor.main(json=True) == 0
    monkeypatch.setattr(doctor, "diagnose", lambda more: [good, bad])
    assert doctor.main(json=True) == 1
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[0])["ok"] is True
    assert json.loads(lines[1])["checks"][1] == bad._asdict()
    assert doctor.main() == 1
    table = capsys.readouterr().out
    assert "mend it" in table
    assert "1 ok, 0 warnings, 1 failures" in table


def test_a_check_that_breaks_is_a_finding(monkeypatch):
    def broken(*_):
        raise KeyError("gone")

    monkeypatch.setattr(doctor, "check_memory", broken)
    found = {check.name: check for check in doctor.diagnose()}["memory"]
    assert found.status == "warn"
    assert "KeyError" in found.finding


def test_a_tensorflow_that_cannot_be_imported_ends_the_list(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    last = doctor.diagnose()[-1]
    assert (last.name, last.status) == ("tensorflow", "fail")
    assert "pip install" in last.advice


def test_another_backend_fails(monkeypatch):
    monkeypatch.setattr(facts, "keras_backend", lambda: ("jax", "KERAS_BACKEND is"))
    assert doctor.check_backend() == Check(
        "backend", "fail", "KERAS_BACKEND is 'jax'", "set KERAS_BACKEND=tensorflow"
    )


def test_a_python_outside_the_range_fails(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 9, 18))
    assert doctor.check_python().status == "fail"
    monkeypatch.setattr(doctor.sys, "version_info", (3, 13, 0))
    assert doctor.check_python().status == "ok"


def test_the_cpu_fallback_says_why(monkeypatch, no_gpu):
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    monkeypatch.setattr(hardware.glob, "glob", lambda pattern: [])
    monkeypatch.setattr(hardware.os.path, "exists", lambda path: False)
    assert doctor.check_gpu(tf).status == "ok"
    assert "no NVIDIA device" in doctor.check_gpu(tf).finding
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert doctor.check_gpu(tf).status == "warn"
    assert doctor.check_gpu(tf).advice == "unset CUDA_VISIBLE_DEVICES"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(hardware.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    monkeypatch.setattr(hardware, "driver_cuda_version", lambda: None)
    assert "libcuda.so.1" in doctor.check_gpu(tf).finding
    monkeypatch.setattr(hardware, "driver_cuda_version", lambda: "12.8")
    assert doctor.check_gpu(tf).status == "fail"
    assert "and-cuda" in doctor.check_gpu(tf).advice
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: False)
    assert "without CUDA" in doctor.check_gpu(tf).finding


def test_a_gpu_is_named(gpu):
    assert doctor.check_gpu(tf) == Check("gpu", "ok", "1: NVIDIA L4")


@pytest.mark.parametrize(
    ("driver", "cudnn", "status"),
    [
        ("12.8", "9.3.0", "ok"),
        ("12.8", None, "ok"),  # an installed cuDNN is not a wheel
        ("12.8", "8.9.7", "fail"),
        ("11.8", "9.3.0", "fail"),
        (None, "9.3.0", "fail"),
    ],
)
def test_cuda_is_compared_with_what_tensorflow_was_built_for(
    gpu, monkeypatch, driver, cudnn, status
):
    wheel = types.SimpleNamespace(name="nvidia-cudnn-cu12", version=cudnn)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [wheel] if cudnn else [])
    monkeypatch.setattr(hardware, "driver_cuda_version", lambda: driver)
    check = doctor.check_cuda(tf)
    assert check.status == status
    assert "CUDA 12.5.1, cuDNN 9" in check.finding


def test_gpu_memory_in_use_by_others_is_a_warning(gpu, monkeypatch):
    device = FakeGpu("GPU-1", free=3 * 1024, total=24 * 1024)
    install(monkeypatch, device)
    assert doctor.check_gpu_memory(tf).finding == "3.0 of 24.0 GiB free"
    assert doctor.check_gpu_memory(tf).status == "warn"
    device.free = 23 * 1024
    assert doctor.check_gpu_memory(tf).status == "ok"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in doctor.check_gpu_memory(tf).advice


def test_xla_is_not_tried_on_a_gpu_that_it_would_abort_on(gpu, monkeypatch):
    gpu["compute_capability"] = (12, 0)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("must not compile"))
    assert doctor.check_capability(tf).status == "fail"
    assert doctor.check_xla(tf).status == "fail"


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (0, "", "ok"),
        (1, "libdevice not found at ./libdevice.10.bc", "nvidia-cuda-nvcc"),
        (-6, "Aborted", "see gpu"),
    ],
)
def test_xla_beside_a_gpu_runs_in_a_process_of_its_own(gpu, monkeypatch, status, stderr, expected):
    done = types.SimpleNamespace(returncode=status, stdout="noise 0.25\n", stderr=stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    check = doctor.check_xla(tf)
    assert expected in (check.status, *check.advice.split()) or expected in check.advice
    assert ("0.25 s" in check.finding) == (status == 0)


def test_the_program_of_that_process_runs(monkeypatch):
    monkeypatch.setattr(hardware, "gpu_capability", lambda tf: (8, 9))
    monkeypatch.setattr(hardware, "known_capability", lambda build: (9, 0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    check = doctor.check_xla(tf)
    assert "compiled and ran" in check.finding, check


def test_precision_names_the_units(gpu, monkeypatch):
    assert "float16 and bfloat16" in doctor.check_precision(tf).finding
    gpu["compute_capability"] = (7, 5)
    assert doctor.check_precision(tf).finding == "tensor cores for float16"
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])
    monkeypatch.setattr(hardware, "cpu_description", lambda: ("x", "avx512_bf16 avx512f"))
    assert doctor.check_precision(tf).finding == "CPU with avx512_bf16"


def test_the_cache_is_counted_and_its_problems_named(monkeypatch, tmp_path):
    folder = cache_folder()
    folder.mkdir(parents=True)
    (folder / "xla_compile_cache__1__2__XLA_CPU_JIT.pb").write_bytes(bytes(2**20))
    assert "1 programs, 1.0 MiB" in doctor.check_cache().finding

    def refuse(dir):
        raise PermissionError("denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    assert "not writable" in doctor.check_cache().finding
    monkeypatch.setenv("KYTOLLY_COMPILE_CACHE", "off")
    assert doctor.check_cache().status == "warn"


def test_more_threads_than_cores_is_a_warning(monkeypatch):
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    check = doctor.check_threads(tf)
    assert check.status == "warn"
    assert check.advice == "configure_gpu_optimization(num_intra_threads=2)"
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 2)
    assert doctor.check_threads(tf).status == "ok"
