import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kytolly.machine import compile_cache, hardware
from kytolly.machine.compile_cache import cache_folder, record_checksums, sweep_cache

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    monkeypatch.setenv("KYTOLLY_COMPILE_CACHE", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_cache_lies_where_argument_variable_or_default_say(monkeypatch, tmp_path):
    monkeypatch.delenv("KYTOLLY_COMPILE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder().parent == tmp_path / "kytolly" / "xla"
    monkeypatch.setenv("KYTOLLY_COMPILE_CACHE", str(tmp_path / "moved"))
    assert cache_folder().parent == tmp_path / "moved"
    assert cache_folder(tmp_path / "given").parent == tmp_path / "given"
    assert cache_folder(False) is None
    monkeypatch.setenv("KYTOLLY_COMPILE_CACHE", "off")
    assert cache_folder() is None


def test_another_machine_gets_another_folder(monkeypatch):
    here = cache_folder()
    assert here == cache_folder()
    with monkeypatch.context() as other:
        other.setattr(hardware, "cpu_description", lambda: ("AMD EPYC", "avx avx2"))
        assert cache_folder() != here
    with monkeypatch.context() as other:
        other.setattr(hardware, "usable_cores", lambda: 1000)
        assert cache_folder() != here
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    assert cache_folder() != here


def entry(folder, name, payload):
    """A file as TensorFlow writes it: one length-delimited field of a protocol buffer."""
    path = folder / f"xla_compile_cache__{name}__XLA_CPU_JIT.pb"
    path.write_bytes(bytes([0x0A, len(payload)]) + payload)
    return path


def test_damaged_entries_are_removed_and_sound_ones_kept(tmp_path):
    good = entry(tmp_path, "good", b"x" * 100)
    cut, empty, zeroed, flipped = (
        entry(tmp_path, name, b"x" * 100) for name in ("cut", "empty", "zeroed", "flipped")
    )
    record_checksums(tmp_path)
    unrecorded = entry(tmp_path, "new", b"y" * 100)
    entry(tmp_path, "newempty", b"").write_bytes(b"")
    entry(tmp_path, "newzeroed", b"").write_bytes(bytes(102))
    unrecorded_cut = entry(tmp_path, "newcut", b"y" * 100)
    cut.write_bytes(cut.read_bytes()[:50])
    unrecorded_cut.write_bytes(unrecorded_cut.read_bytes()[:50])
    empty.write_bytes(b"")
    zeroed.write_bytes(bytes(102))
    flipped.write_bytes(flipped.read_bytes().replace(b"xxxx", b"xxXx", 1))  # still well formed
    assert sweep_cache(tmp_path) == 7
    assert set(tmp_path.glob("*.pb")) == {good, unrecorded}


def test_an_entry_written_anew_gets_a_new_checksum(tmp_path):
    path = entry(tmp_path, "a", b"first")
    record_checksums(tmp_path)
    later = (tmp_path / "checksums.json").stat().st_mtime + 5
    entry(tmp_path, "a", b"second")
    os.utime(path, (later, later))
    record_checksums(tmp_path)
    assert sweep_cache(tmp_path) == 0
    assert path.exists()


def test_the_oldest_entries_go_when_the_cache_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "MAX_CACHE_BYTES", 250)
    paths = [entry(tmp_path, str(age), b"x" * 100) for age in range(3)]
    for age, path in enumerate(paths):
        os.utime(path, (1000 - age, 1000 - age))
    assert sweep_cache(tmp_path) == 0
    assert [path.exists() for path in paths] == [True, True, False]


PROGRAM = """
import json, sys
if "import" in sys.argv[1]:
    import tensorflow as tf
from kytolly.machine.configure import configure_gpu_optimization
assert "import" in sys.argv[1] or "tensorflow" not in sys.modules, "imports TensorFlow"
item = configure_gpu_optimization(verbose=False)["compile_cache"]
import tensorflow as tf

@tf.function(jit_compile=True)
def program(x):
    for i in range(8):
        x = tf.tanh(tf.matmul(x, x + float(i))) * tf.reduce_mean(x) + tf.sin(tf.sort(x, axis=1))
    return tf.reduce_sum(x)
compiled = program.get_concrete_function(tf.TensorSpec([32, 32]))
value = float(compiled(tf.ones([32, 32])))
print(json.dumps([item.done, item.message, value]))
"""


def start_process(folder, mode="first"):
    own = ("TF_XLA_FLAGS", "XLA_FLAGS", "KYTOLLY_XLA", "TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND")
    env = {k: v for k, v in os.environ.items() if k not in own}
    env |= {"KYTOLLY_COMPILE_CACHE": str(folder), "PYTHONPATH": str(ROOT)}
    env["CUDA_VISIBLE_DEVICES"] = "-1"
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode], env=env, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "cpu_aot_loader" not in run.stderr or mode != "first"
    return json.loads(run.stdout.splitlines()[-1])


def test_a_second_process_compiles_nothing_and_a_damaged_entry_breaks_no_start(tmp_path):
    folder = tmp_path / "with space"
    cold = start_process(folder)
    assert cold[0], cold[1]
    (path,) = folder.glob("*/*.pb")
    written = path.stat().st_mtime_ns
    damaged = path.with_name(path.name.replace("xla_compile_cache__", "xla_compile_cache__other"))
    damaged.write_bytes(path.read_bytes()[:-1000])
    warm = start_process(folder, "import")  # importing TensorFlow first is no harm
    assert "1 damaged" in warm[1] and not damaged.exists() and warm[2] == cold[2]
    assert path.stat().st_mtime_ns == written  # a program that is compiled is written
    assert path.name in json.loads((path.parent / "checksums.json").read_text())
