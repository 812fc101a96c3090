import importlib.util
import io
import json
import os
import types
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from kytolly.machine import compile_cache, facts, hardware, switches
from kytolly.machine.configure import configure_gpu_optimization
from kytolly.machine.facts import xla_enabled

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("TF_XLA_FLAGS", "XLA_FLAGS", "KYTOLLY_XLA", "KYTOLLY_COMPILE_CACHE")
VARIABLES += (
    "TF_ENABLE_AUTO_MIXED_PRECISION",
    "TF_CPP_MIN_LOG_LEVEL",
    "CUDA_VISIBLE_DEVICES",
    "KERAS_BACKEND",
    "CUDA_HOME",
)
LATE = "Physical devices cannot be modified after being initialized"


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine without a GPU, a cache folder of its own and no flags; all undone afterwards."""
    tf.config.list_physical_devices()  # TensorFlow reads its flags now, not this test's
    policy = keras.mixed_precision.dtype_policy()
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # registers what was there, to be restored
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compile_cache.atexit, "register", lambda *args: None)
    monkeypatch.setattr(compile_cache, "flags_were_read", lambda: False)
    monkeypatch.setattr(hardware, "nvidia_gpu_plausible", lambda: False)
    yield
    keras.mixed_precision.set_dtype_policy(policy)


@pytest.fixture
def gpus(monkeypatch):
    """Two mocked GPUs; `log` holds what was done to them."""
    state = types.SimpleNamespace(names=["GPU:0", "GPU:1"], growth={}, log=[], capability=(8, 9))

    def set_growth(gpu, value):
        state.growth[gpu] = value
        state.log.append((gpu, value))

    def list_devices(kind=None):
        return state.names if kind == "GPU" else []

    for place, name, mocked in (
        (tf.config, "list_physical_devices", list_devices),
        (tf.config.experimental, "get_memory_growth", lambda gpu: state.growth.get(gpu, False)),
        (tf.config.experimental, "set_memory_growth", set_growth),
        (
            tf.config.experimental,
            "get_device_details",
            lambda _: {"compute_capability": state.capability},
        ),
        (tf.config.experimental, "enable_tensor_float_32_execution", state.log.append),
        (tf.sysconfig, "get_build_info", lambda: {"cuda_compute_capabilities": ["sm_89", "sm_90"]}),
    ):
        monkeypatch.setattr(place, name, mocked)
    return state


def configured(**settings):
    return configure_gpu_optimization(verbose=False, **settings)


def test_a_machine_without_a_gpu_is_reported_and_not_an_error(capsys):
    report = configure_gpu_optimization()
    lines = capsys.readouterr().out.splitlines()
    assert "✅ XLA compilation enabled" in lines
    assert any(line.startswith("⚠️  No GPU") and "kytolly doctor" in line for line in lines)
    assert len(lines) == len(report.items)
    assert not report["gpu"].done
    assert report["xla"].done
    json.dumps(report.as_dict())


def test_quiet_means_nothing_printed_and_an_ascii_terminal_is_no_error(capsys):
    configured()
    assert capsys.readouterr().out == ""
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    configure_gpu_optimization(file=narrow)
    narrow.flush()
    assert b"? XLA compilation enabled" in narrow.buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_limit_mb", 0),
        ("memory_limit_mb", 1.5),
        ("num_intra_threads", -1),
        ("num_inter_threads", True),
        ("mixed_precision_dtype", "float8"),
    ],
)
def test_a_bad_argument_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}, expected"):
        configured(**{name: value})


def test_another_keras_backend_is_refused(monkeypatch):
    monkeypatch.setattr(facts, "keras_backend", lambda: ("jax", "KERAS_BACKEND is"))
    with pytest.raises(ValueError, match=r"KERAS_BACKEND is 'jax', expected 'tensorflow'"):
        configured()


def test_memory_growth_is_set_once_on_every_gpu(gpus):
    assert (
        configured()["memory_growth"].line() == "✅ Configured 2 GPU(s) with memory growth enabled"
    )
    assert gpus.log[:2] == [("GPU:0", True), ("GPU:1", True)]
    assert configured()["memory_growth"].done
    assert gpus.log.count(("GPU:0", True)) == 1


def test_what_is_asked_for_too_late_says_what_to_do(gpus, monkeypatch):
    def too_late(*_):
        raise RuntimeError(LATE)

    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", too_late)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", too_late)
    report = configured(num_intra_threads=17)
    for name in ("memory_growth", "threads"):
        assert not report[name].done
        assert LATE in report[name].reason
        assert "before anything else" in report[name].reason


def test_a_memory_limit_replaces_growth(gpus, monkeypatch):
    limits = {}
    monkeypatch.setattr(
        tf.config,
        "set_logical_device_configuration",
        lambda gpu, devices: limits.update({gpu: devices[0].memory_limit}),
    )
    report = configured(memory_limit_mb=2048)
    assert limits == {"GPU:0": 2048, "GPU:1": 2048}
    assert gpus.growth == {}
    assert report["memory_limit"].message == "Configured 2 GPU(s) with a memory limit of 2048 MB"


def test_xla_is_left_off_on_a_gpu_that_tensorflow_does_not_know(gpus, monkeypatch):
    gpus.capability = (9, 0)  # exactly the newest known
    assert configured()["xla"].done
    gpus.capability = (12, 0)
    assert "(12, 0)" in configured()["xla"].reason
    assert not xla_enabled()
    monkeypatch.setenv("KYTOLLY_XLA", "force")
    assert configured()["xla"].done
    assert xla_enabled()


def test_the_last_call_decides_whether_xla_is_on():
    assert xla_enabled()
    assert configured(enable_xla=False)["xla"].line().startswith("○ XLA compilation off")
    assert not xla_enabled()
    configured()
    assert xla_enabled()


def test_auto_clustering_is_off_unless_asked_for_and_warns():
    assert "auto_clustering" not in {item.name for item in configured().items}
    item = configured(enable_auto_clustering=True)["auto_clustering"]
    on, _ = tf.config.optimizer.get_jit(), configured()
    assert on
    assert "wrong results" in item.message
    assert not tf.config.optimizer.get_jit()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision_sets_the_policy_and_the_next_call_undoes_it(dtype):
    item = configured(enable_mixed_precision=True, mixed_precision_dtype=dtype)["mixed_precision"]
    assert keras.mixed_precision.dtype_policy().name == f"mixed_{dtype}"
    assert "slower" in item.reason  # no tensor cores on a CPU
    configured()
    assert keras.mixed_precision.dtype_policy().name == "float32"
    keras.mixed_precision.set_dtype_policy("bfloat16")
    configured()
    assert keras.mixed_precision.dtype_policy().name == "bfloat16"  # the user's own choice


def test_precision_says_where_tensor_cores_are_missing(gpus):
    for capability, slow in (((6, 1), 2), ((7, 0), 1), ((7, 5), 1), ((8, 0), 0)):
        gpus.capability = capability
        settings = [{"mixed_precision_dtype": dtype} for dtype in ("float16", "bfloat16")]
        items = [configured(enable_mixed_precision=True, **s)["mixed_precision"] for s in settings]
        assert ["slower" in item.message for item in items] == [slow == 2, slow >= 1]


def test_tf32_needs_compute_capability_8(gpus):
    assert configured()["tf32"].done
    assert gpus.log[-1] is True
    assert not configured(enable_tf32=False)["tf32"].done
    assert gpus.log[-1] is False
    gpus.capability = (7, 5)
    assert "needs 8.0" in configured()["tf32"].reason


def test_threads_follow_the_arguments_or_the_containers_quota(monkeypatch):
    calls = {}
    threading = tf.config.threading
    for kind in ("intra", "inter"):
        name = f"{kind}_op_parallelism_threads"
        monkeypatch.setattr(threading, f"get_{name}", lambda: 0)
        monkeypatch.setattr(threading, f"set_{name}", lambda n, kind=kind: calls.update({kind: n}))
    configured(num_intra_threads=3, num_inter_threads=4)
    assert calls == {"intra": 3, "inter": 4}
    calls.clear()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)
    configured()
    assert calls == {"intra": 2}
    calls.clear()
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as a process of `train --seeds` has
    configured()
    assert calls == {}


def test_the_cache_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("KYTOLLY_COMPILE_CACHE", "off")
    assert not configured()["compile_cache"].requested
    assert "TF_XLA_FLAGS" not in os.environ


def test_the_users_flags_are_kept(monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=0")
    configured()
    assert os.environ["TF_XLA_FLAGS"].startswith("--tf_xla_auto_jit=0 --tf_xla_persistent_cache")
    configured()
    assert os.environ["TF_XLA_FLAGS"].count("--tf_xla_persistent_cache_directory") == 1
    assert "unset" in configured(compile_cache=False)["compile_cache"].reason
    monkeypatch.setenv("TF_XLA_FLAGS", "/home/me/flags")
    assert "names a file" in configured()["compile_cache"].reason
    assert os.environ["TF_XLA_FLAGS"] == "/home/me/flags"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tf_xla_auto_jit=2", "tf_xla_auto_jit=2 in TF_XLA_FLAGS: XLA auto-clustering on"),
        ("--tf_xla_auto_jit 1 --tf_xla_cpu_global_jit", "tf_xla_auto_jit=1 in"),
        ("--tf_xla_auto_jit=fusible", "auto-clustering on"),
        ("--tf_xla_auto_jit=2 --tf_xla_auto_jit=0", "auto-clustering off"),
    ],
)
def test_auto_clustering_by_a_flag_is_named(flags, message, monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    item = configured()["tf_xla_auto_jit"]
    assert message in item.message and not item.done
    assert ("125686" in item.reason) == message.endswith(("on", "in"))  # a warning, where it is on
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit")
    assert "tf_xla_auto_jit" not in {item.name for item in configured().items}


def test_a_variable_that_tensorflow_does_not_read_is_named(monkeypatch):
    name = "TF_ENABLE_AUTO_MIXED_PRECISION"
    assert name not in {item.name for item in configured().items}
    monkeypatch.setenv(name, "1")
    line = configured()[name].line()
    assert line.startswith("⚠️") and f"{name}=1 has no effect" in line
    assert "enable_mixed_precision" in line
    monkeypatch.setenv(name, "0")
    assert configured()[name].line().startswith("○")


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    item = configured(compile_cache=tmp_path / "file" / "below")["compile_cache"]
    assert "KYTOLLY_COMPILE_CACHE" in item.reason
    assert "TF_XLA_FLAGS" not in os.environ


def test_a_full_disk_makes_the_cache_read_only(monkeypatch):
    disk = types.SimpleNamespace(free=2**20)
    monkeypatch.setattr(compile_cache.shutil, "disk_usage", lambda _: disk)
    assert "read only" in configured()["compile_cache"].message
    assert "--tf_xla_persistent_cache_read_only=true" in os.environ["TF_XLA_FLAGS"]


def test_once_tensorflow_has_read_its_flags_the_cache_stays_off(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    item = configured()["compile_cache"]  # this process listed its devices long ago
    assert "has read its flags already" in item.reason
    assert "TF_XLA_FLAGS" not in os.environ


def cuda_folder(path):
    library = path / "nvvm" / "libdevice" / "libdevice.10.bc"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"BC")
    return path


def test_flags_of_gpu_programs_are_set_only_beside_a_gpu(monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec
    hidden = {"nvidia": None}  # the wheel, where the extra gpu-compile brought it
    monkeypatch.setattr(
        switches.importlib.util,
        "find_spec",
        lambda name, *more: hidden[name] if name in hidden else find_spec(name, *more),
    )
    monkeypatch.setenv("CUDA_HOME", str(cuda_folder(tmp_path / "cuda 12")))
    assert "libdevice" not in {item.name for item in configured().items}
    assert "XLA_FLAGS" not in os.environ
    monkeypatch.setattr(hardware, "nvidia_gpu_plausible", lambda: True)
    assert configured()["libdevice"].done
    assert configured()["matrix_products"].done
    flags = f"--xla_gpu_cuda_data_dir='{tmp_path}/cuda 12' --xla_gpu_enable_triton_gemm=false"
    assert os.environ["XLA_FLAGS"] == flags


def test_a_users_choice_of_matrix_products_stays(monkeypatch):
    monkeypatch.setattr(hardware, "nvidia_gpu_plausible", lambda: True)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=true")
    item = configured()["matrix_products"]
    assert item.done and "set in XLA_FLAGS" in item.message
    assert os.environ["XLA_FLAGS"].count("triton") == 1


def test_the_wheels_libdevice_comes_before_an_installed_cuda(monkeypatch, tmp_path):
    wheel = cuda_folder(tmp_path / "nvidia" / "cuda_nvcc")
    monkeypatch.setenv("CUDA_HOME", str(cuda_folder(tmp_path / "cuda")))
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(switches.importlib.util, "find_spec", lambda name: spec)
    assert switches.find_libdevice() == wheel
