"""One reader of GPUs: the same one for the doctor, the presets and the metrics of training."""

import sys

import pytest

from kytolly.machine import doctor, hardware, presets
from kytolly.machine.gpu import Gpu
from tests.helpers.fake_nvml import MIB, FakeGpu, install

# Three alike, of which each has another amount free.
ALIKE = [FakeGpu(f"GPU-{name}", free) for name, free in (("aa1", 100), ("aa2", 200), ("bb3", 300))]
DIVIDED = FakeGpu(
    "GPU-cc4",
    400,
    instances=[None, FakeGpu("MIG-d1", 10, 50, instances=None), FakeGpu("MIG-e2", 20, 50)],
)
MIXED = [FakeGpu("GPU-1", 100, name="NVIDIA T4"), FakeGpu("GPU-2", 200, name="NVIDIA H100")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2, 0", ["2", "0"]),
        ("0,-1,2", ["0"]),  # CUDA ignores what follows
        ("GPU-aa, MIG-d1", ["GPU-aa", "MIG-d1"]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(text, names):
    assert hardware.named_gpus(text) == names


@pytest.mark.parametrize(
    ("visible", "number", "free"),
    [
        (None, 1, 200),
        ("2,0", 0, 300),
        ("2,0", 1, 100),
        ("2,0", 2, None),
        ("GPU-bb3", 0, 300),
        ("GPU-bb", 0, 300),  # CUDA takes the beginning of a UUID
        ("GPU-aa", 0, None),  # two begin so
        ("1,7,0", 0, 200),
        ("1,7,0", 1, None),  # there is no GPU 7, and CUDA ignores what follows
        ("", 0, None),
        ("-1", 0, None),
        ("3", 0, 10),  # the first instance of a divided GPU
        ("GPU-cc4", 0, 10),
        ("MIG-e2", 0, 20),
    ],
)
def test_the_memory_is_that_of_the_gpu_that_tensorflow_sees(monkeypatch, visible, number, free):
    install(monkeypatch, *ALIKE, DIVIDED, visible=visible)
    expected = None if free is None else free * MIB
    assert presets.free_bytes(f"/GPU:{number}") == expected
    gpu = Gpu.of(f"/device:GPU:{number}")
    assert (gpu and gpu.memory().free) == expected


def test_the_doctor_names_the_visible_gpus_in_their_order(monkeypatch):
    install(monkeypatch, *ALIKE, visible="2,1")
    finding = doctor.check_gpu_memory(None).finding
    assert finding == "0.3 of 1.0 GiB free, 0.2 of 1.0 GiB free"


@pytest.mark.parametrize(
    ("visible", "order", "free"),
    [
        ("1", None, None),  # CUDA counts from the fastest one
        ("1", "FASTEST_FIRST", None),
        ("1", "PCI_BUS_ID", 200),
        ("GPU-2", None, 200),
    ],
)
def test_where_cuda_counts_gpus_otherwise_than_nvml_nothing_is_guessed(
    monkeypatch, visible, order, free
):
    install(monkeypatch, *MIXED, visible=visible, order=order)
    assert presets.free_bytes("/GPU:0") == (free and free * MIB)
    assert ("PCI_BUS_ID" in doctor.check_gpu_memory(None).advice) == (free is None)


def test_a_mig_instance_has_memory_and_no_utilization(monkeypatch):
    install(monkeypatch, FakeGpu("GPU-1", 997, utilization=None))
    gpu = Gpu.of("/GPU:0")
    assert gpu is not None and gpu.metrics() == {"memory_mb": 3.0}


def test_without_a_gpu_or_its_library_there_is_nothing(monkeypatch):
    install(monkeypatch, *ALIKE)
    assert Gpu.of("/device:CPU:0") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpu.of("/GPU:0") is None and presets.free_bytes("/GPU:0") is None


@pytest.mark.parametrize(("visible", "hidden"), [("", True), ("-1,0", True), ("0,-1", False)])
def test_a_hidden_gpu_is_not_plausible(monkeypatch, visible, hidden):
    monkeypatch.setattr(hardware.glob, "glob", lambda _: ["/dev/nvidia0"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.nvidia_gpu_plausible() != hidden
    assert ("hides" in hardware.why_no_gpu()) == hidden
