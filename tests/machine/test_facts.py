import sys

import pytest

from kytolly.machine import doctor, facts, hardware


def test_the_backend_is_read_from_the_variable_then_from_kerass_file(monkeypatch, tmp_path):
    assert facts.keras_backend()[0] == "tensorflow"
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert facts.keras_backend() == ("jax", "the environment variable KERAS_BACKEND is")
    monkeypatch.delenv("KERAS_BACKEND")
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    assert facts.keras_backend() == ("torch", f"{tmp_path}/keras.json has the backend")
    (tmp_path / "keras.json").write_text("not json")
    assert facts.keras_backend()[0] == "tensorflow"


def test_the_newest_capability_is_read_from_both_spellings():
    assert hardware.known_capability(
        {"cuda_compute_capabilities": ["sm_60", "sm_89", "compute_90"]}
    ) == (9, 0)
    assert hardware.known_capability({"cuda_compute_capabilities": ["sm_90a", "sm_120"]}) == (12, 0)
    assert hardware.known_capability({}) == (0, 0)


@pytest.fixture
def system_files(monkeypatch, tmp_path):
    """Files of /proc and /sys, by their names here."""
    real, files = facts.Path, {}

    def path(name, *rest):
        if str(name).startswith(("/proc", "/sys")):
            return real(files.get(str(name), tmp_path / "missing"))
        return real(name, *rest)

    def write(name, text):
        file = tmp_path / name.replace("/", "_")
        file.write_text(text)
        files[name] = file

    for module in (facts, hardware):
        monkeypatch.setattr(module, "Path", path)
    return write


def test_cores_are_cut_to_the_containers_quota(monkeypatch, system_files):
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert hardware.usable_cores() == 8
    system_files("/sys/fs/cgroup/cpu.max", "max 100000\n")
    assert hardware.usable_cores() == 8
    system_files("/sys/fs/cgroup/cpu.max", "150000 100000\n")
    assert hardware.usable_cores() == 2


def test_memory_is_cut_to_the_containers_limit(system_files):
    assert facts.available_memory_bytes() is None
    assert doctor.check_memory().finding == "unknown on this system"
    system_files("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   4194304 kB\n")
    assert facts.available_memory_bytes() == 4 * 2**30
    assert doctor.check_memory().status == "ok"
    system_files("/sys/fs/cgroup/memory.max", str(3 * 2**30))
    system_files("/sys/fs/cgroup/memory.current", str(2 * 2**30))
    assert facts.available_memory_bytes() == 2**30
    assert "replay_capacity" in doctor.check_memory().advice
    system_files("/sys/fs/cgroup/memory.max", "max")
    assert facts.available_memory_bytes() == 4 * 2**30
