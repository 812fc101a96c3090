"""`kytolly doctor`: one check for each part of the machine, with the one thing to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NamedTuple

from kytolly.machine import facts, hardware
from kytolly.machine.compile_cache import cache_folder
from kytolly.machine.gpu import UnknownGpu, visible_gpus
from kytolly.machine.gpu_costs import PROGRAMS, predicted_milliseconds

TESTED_TENSORFLOW = ("2.21.", "2.22.")
COMPILE_PROGRAM = """
from kytolly.machine import configure, doctor
configure.configure_gpu_optimization(verbose=False)
import tensorflow as tf
print(doctor.seconds_to_compile(tf))
"""


class Check(NamedTuple):
    """One part of the machine: what was found, and the one thing to do about it (or nothing).

    Status ok: works. warn: works, slower or smaller than it could. fail: does not work.
    """

    name: str
    status: str
    finding: str
    advice: str = ""


MachineCheck = Callable[[ModuleType], Check]  # of the module tensorflow


def diagnose(more: Mapping[str, MachineCheck] | None = None) -> list[Check]:
    """Run all checks, in the order in which one failure explains the next.

    Args:
        more: Further checks by name, each a function of the module tensorflow.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its own words come out as findings
    checks = [run_check("python", check_python), run_check("backend", check_backend)]
    try:
        import tensorflow as tf
    except Exception as error:
        finding = f"import fails: {' '.join(str(error).split())[:300]}"
        advice = "pip install --force-reinstall 'tensorflow>=2.21,<2.23'"
        return [*checks, Check("tensorflow", "fail", finding, advice)]
    rows = [("tensorflow", check_tensorflow), ("gpu", check_gpu), ("cuda", check_cuda)]
    if tf.config.list_physical_devices("GPU"):
        rows += [("gpu memory", check_gpu_memory), ("capability", check_capability)]
    rows += [
        ("gpu speed", check_gpu_speed),
        ("precision", check_precision),
        ("xla", check_xla),
        ("threads", check_threads),
    ]
    checks += [run_check(name, check, tf) for name, check in rows]
    checks += [run_check("compile cache", check_cache), run_check("memory", check_memory)]
    last = {"preset": check_preset, **(more or {})}
    return [*checks, *(run_check(name, check, tf) for name, check in last.items())]


def run_check(name: str, check: Callable[..., Check], *inputs: ModuleType) -> Check:
    """Run one check; a check that breaks is a finding, not the end of the others."""
    try:
        return check(*inputs)
    except Exception as error:
        finding = f"could not be checked: {type(error).__name__}: {' '.join(str(error).split())}"
        return Check(name, "warn", finding[:300], "report this line to the project")


def check_python() -> Check:
    """The interpreter: TensorFlow 2.21 and 2.22 have wheels for 3.11 to 3.14."""
    python = f"{platform.python_version()} at {sys.executable}"
    if (3, 11) <= sys.version_info[:2] <= (3, 14):
        return Check("python", "ok", python)
    return Check("python", "fail", python, "make a virtual environment with Python 3.11 to 3.14")


def check_backend() -> Check:
    """The backend of Keras."""
    backend, where = facts.keras_backend()
    if backend != "tensorflow":
        return Check("backend", "fail", f"{where} {backend!r}", "set KERAS_BACKEND=tensorflow")
    return Check("backend", "ok", "Keras runs on tensorflow")


def check_tensorflow(tf: ModuleType) -> Check:
    """Versions of TensorFlow and Keras against the ones this project is tested with."""
    import keras

    finding = f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    if tf.__version__.startswith(TESTED_TENSORFLOW) and keras.__version__.startswith("3."):
        return Check("tensorflow", "ok", finding)
    advice = "pip install 'tensorflow>=2.21,<2.23' 'keras>=3.13,<4'"
    return Check("tensorflow", "warn", f"{finding}; tested with 2.21, 2.22 and Keras 3", advice)


def check_gpu(tf: ModuleType) -> Check:
    """The GPUs TensorFlow lists, or why it falls back to the CPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        names = ", ".join(d.get("device_name", "unknown GPU") for d in details)
        return Check("gpu", "ok", f"{len(gpus)}: {names}")
    finding = f"CPU only ({hardware.cpu_description()[0]}): "
    if not tf.test.is_built_with_cuda():
        advice = "pip install 'tensorflow[and-cuda]' (Linux, or Windows through WSL2)"
        return Check("gpu", "ok", finding + "this TensorFlow was built without CUDA", advice)
    if not hardware.nvidia_gpu_plausible():
        if "hides" in hardware.why_no_gpu():
            return Check(
                "gpu", "warn", finding + hardware.why_no_gpu(), "unset CUDA_VISIBLE_DEVICES"
            )
        return Check("gpu", "ok", finding + hardware.why_no_gpu())
    if hardware.driver_cuda_version() is None:
        smi = "nvidia-smi is there" if shutil.which("nvidia-smi") else "nvidia-smi is missing too"
        advice = "install the NVIDIA driver, or start the container with --gpus all"
        return Check("gpu", "fail", f"{finding}libcuda.so.1 cannot be loaded; {smi}", advice)
    advice = "pip install 'tensorflow[and-cuda]>=2.21,<2.23'"
    return Check("gpu", "fail", finding + "the CUDA libraries could not be loaded", advice)


def check_cuda(tf: ModuleType) -> Check:
    """CUDA and cuDNN that TensorFlow was built for, against what is found."""
    build = tf.sysconfig.get_build_info()
    cuda, cudnn = (str(build.get(f"{name}_version", "none")) for name in ("cuda", "cudnn"))
    wanted = f"TensorFlow was built for CUDA {cuda}, cuDNN {cudnn}"
    if not hardware.nvidia_gpu_plausible():
        return Check("cuda", "ok", f"{wanted}; not needed without a GPU")
    wheels = {d.name.lower(): d.version for d in importlib.metadata.distributions() if d.name}
    wheel = wheels.get("nvidia-cudnn-cu12")
    driver = hardware.driver_cuda_version() or "none"
    finding = f"{wanted}; driver: CUDA {driver}; cuDNN wheel: {wheel or 'none'}"
    if driver == "none" or int(driver.split(".")[0]) < int(cuda.split(".")[0]):
        return Check("cuda", "fail", finding, f"install an NVIDIA driver for CUDA {cuda}")
    if wheel and wheel.split(".")[0] != cudnn.split(".")[0]:
        return Check("cuda", "fail", finding, f"pip install 'nvidia-cudnn-cu12=={cudnn}.*'")
    return Check("cuda", "ok", finding)


def check_gpu_memory(tf: ModuleType) -> Check:
    """Free memory of every GPU that TensorFlow sees."""
    try:
        memories = [gpu.memory() for gpu in visible_gpus()]
    except UnknownGpu as error:
        advice = "set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        return Check("gpu memory", "warn", f"cannot be read: {error}", advice)
    except Exception as error:
        return Check("gpu memory", "warn", f"cannot be read: {error}", "pip install nvidia-ml-py")
    if not memories:
        advice = "pip install --upgrade nvidia-ml-py"
        return Check("gpu memory", "warn", "cannot be read: NVML lists no GPU", advice)
    finding = ", ".join(f"{m.free / 2**30:.1f} of {m.total / 2**30:.1f} GiB free" for m in memories)
    if any(m.free < 0.5 * m.total for m in memories):
        advice = "end the other processes (nvidia-smi lists them), or choose another GPU"
        return Check("gpu memory", "warn", finding, advice)
    return Check("gpu memory", "ok", finding)


def check_capability(tf: ModuleType) -> Check:
    """The GPU's capability: XLA aborts the process on one that TensorFlow does not know."""
    gpu = hardware.gpu_capability(tf)
    known = hardware.known_capability(tf.sysconfig.get_build_info())
    finding = f"GPU {gpu[0]}.{gpu[1]}, TensorFlow knows up to {known[0]}.{known[1]}"
    if (0, 0) < known < gpu:
        advice = "configure_gpu_optimization(enable_xla=False), or a newer TensorFlow"
        return Check("capability", "fail", finding, advice)
    return Check("capability", "ok", finding)


def check_gpu_speed(tf: ModuleType) -> Check:
    """The time of small programs on a GPU, predicted: their launches decide, not their sizes."""
    parts = []
    for name in ("dqn", "ppo", "ppo-wide"):
        milliseconds = predicted_milliseconds(name)
        parts.append(f"{PROGRAMS[name].env_steps:,} env steps of {name} in {milliseconds:.1f} ms")
    finding = f"predicted for a GPU: {', '.join(parts)}"
    advice = "python gpu_optimize.py compares with this CPU; many environments pay on a GPU"
    return Check("gpu speed", "ok", finding, advice)


def check_precision(tf: ModuleType) -> Check:
    """The half-precision units."""
    capability = hardware.gpu_capability(tf)
    flags = hardware.cpu_description()[1].split()
    if capability != (0, 0):
        fast = [
            n for n, least in (("float16", (7, 0)), ("bfloat16", (8, 0))) if capability >= least
        ]
        finding = f"tensor cores for {' and '.join(fast)}" if fast else "no tensor cores"
    else:
        units = [n for n in ("avx512_bf16", "amx_bf16", "avx512_fp16", "amx_fp16") if n in flags]
        finding = f"CPU with {', '.join(units)}" if units else "CPU without half-precision units"
    advice = "python gpu_optimize.py measures whether mixed precision is faster for your network"
    return Check("precision", "ok", finding, advice)


def seconds_to_compile(tf: ModuleType) -> float:
    """Seconds that a small program takes to be traced, compiled and run once."""
    start = time.perf_counter()
    program = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ x)), jit_compile=True)
    float(program(tf.zeros([8, 8])))
    return time.perf_counter() - start


def check_xla(tf: ModuleType) -> Check:
    """A program that XLA compiles; with a GPU in a separate process, which XLA may abort."""
    if hardware.gpu_capability(tf) == (0, 0):
        seconds = seconds_to_compile(tf)
    elif check_capability(tf).status == "fail":
        return Check("xla", "fail", "not tried: it would abort on this GPU", "see capability")
    else:
        command = [sys.executable, "-P", "-c", COMPILE_PROGRAM]  # not from this folder
        place = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=place)
        if run.returncode:
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            advice = "pip install nvidia-cuda-nvcc-cu12" if "libdevice" in run.stderr else "see gpu"
            return Check("xla", "fail", f"ended with status {run.returncode}: {last}"[:300], advice)
        seconds = float(run.stdout.split()[-1])
    finding = f"a small program compiled and ran in {seconds:.2f} s"
    if seconds > 5:
        return Check("xla", "warn", finding, "free a core: training programs take much longer")
    return Check("xla", "ok", finding)


def check_cache() -> Check:
    """The folder of compiled programs: where, how large, writable or not."""
    if (folder := cache_folder()) is None:
        return Check("compile cache", "warn", "off", "unset KYTOLLY_COMPILE_CACHE")
    files = list(folder.glob("xla_compile_cache__*.pb"))
    size = sum(path.stat().st_size for path in files)
    finding = f"{folder}: {len(files)} programs, {size / 2**20:.1f} MiB"
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        advice = "set KYTOLLY_COMPILE_CACHE to a folder that can be written"
        return Check("compile cache", "warn", f"{finding}; not writable: {error}", advice)
    return Check("compile cache", "ok", finding)


def check_threads(tf: ModuleType) -> Check:
    """TensorFlow's threads against the cores this process may use."""
    usable = hardware.usable_cores()
    total = os.cpu_count() or 1
    chosen = tf.config.threading.get_intra_op_parallelism_threads()
    words = chosen or "its own choice of"
    finding = f"{usable} of {total} cores usable; TensorFlow uses {words} threads"
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    if (chosen or affinity) <= usable:
        return Check("threads", "ok", finding)
    advice = f"configure_gpu_optimization(num_intra_threads={usable})"
    return Check("threads", "warn", finding, advice)


def check_memory() -> Check:
    """Memory left for buffers."""
    free = facts.available_memory_bytes()
    if free is None:
        return Check("memory", "ok", "unknown on this system")
    status, advice = "ok", ""
    if free < 2 * 2**30:
        status, advice = "warn", "lower replay_capacity, or end other programs"
    return Check("memory", status, f"{free / 2**30:.1f} GiB available", advice)


def check_preset(tf: ModuleType) -> Check:
    """The preset for images of 84 x 84 x 4 bytes, which take most of all observations."""
    from kytolly.machine.presets import pixel_needs, recommend

    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    name, reason = recommend(pixel_needs("dqn"), device)
    finding = f"{name} for DQN on images of 84 x 84 x 4: {reason}"
    return Check("preset", "ok", finding, f"--preset {name}, or auto for your environment")


def print_checks(checks: list[Check]) -> None:
    """Print a table on standard output, then how many checks need attention."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("", "check", "finding", "what to do", box=box.SIMPLE_HEAD)
    table.columns[2].overflow = "fold"
    marks = {"ok": "✅", "warn": "⚠️", "fail": "❌"}
    for name, status, finding, advice in checks:
        table.add_row(marks[status], name, finding, advice)
    console = Console(highlight=False)
    console.print(table)
    ok, warn, fail = (sum(check.status == status for check in checks) for status in marks)
    console.print(f"{ok} ok, {warn} warnings, {fail} failures")


def checks_as_json(checks: list[Check]) -> str:
    """The checks as one line of JSON; `ok` says that none failed."""
    good = all(check.status != "fail" for check in checks)
    return json.dumps({"ok": good, "checks": [check._asdict() for check in checks]})


def check_cluster(address: str) -> Check:
    """Find the nodes of a Ray cluster, and the versions there that differ from those here."""
    from kytolly.machine import cluster

    try:
        ray = cluster.connect(address)
    except (ValueError, ModuleNotFoundError) as error:
        return Check("cluster", "fail", str(error))
    try:
        nodes = cluster.cluster_nodes(ray)
    finally:
        ray.shutdown()
    here = cluster.versions_here()
    lines, differ = [], False
    for node in nodes:
        others = cluster.other_versions(node, here)
        differ |= bool(others)
        lines.append(cluster.node_text(node) + "".join(f", {text}" for text in others))
    advice = "install the versions of this machine on every node" if differ else ""
    return Check("cluster", "warn" if differ else "ok", "; ".join(lines), advice)


def main(json: bool = False, more: Mapping[str, MachineCheck] | None = None) -> int:
    """Run and print all checks, as `diagnose`; returns 0 where nothing failed, else 1."""
    checks = diagnose(more)
    print(checks_as_json(checks)) if json else print_checks(checks)
    return int(any(check.status == "fail" for check in checks))
