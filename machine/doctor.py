"""Looks at the machine: what of TensorFlow, XLA, GPU, precision and memory works here.

First facts, found without importing TensorFlow (gpu_optimize.py acts on them); then `kytolly
doctor`: one check per fact, with the one thing to do about it.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

OFF_WORDS = ("off", "0", "false")


def keras_backend() -> tuple[str, str]:
    """The backend that Keras runs on, or would when imported, and what says so."""
    if hasattr(sys.modules.get("keras"), "backend"):
        return sys.modules["keras"].backend.backend(), "Keras is loaded with the backend"
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"], "the environment variable KERAS_BACKEND is"
    try:
        path = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
        return json.loads(path.read_text()).get("backend", "tensorflow"), f"{path} has the backend"
    except (OSError, ValueError, AttributeError, RuntimeError):
        return "tensorflow", "Keras's default is"


def nvidia_gpu_plausible() -> bool:
    """Whether a visible NVIDIA GPU may exist here; answers without TensorFlow or CUDA."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


def why_no_gpu() -> str:
    """The likeliest reason that TensorFlow lists no GPU."""
    if nvidia_gpu_plausible():
        return "an NVIDIA device exists, but its driver or the CUDA libraries could not be loaded"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return "CUDA_VISIBLE_DEVICES hides every GPU" if hidden else "there is no NVIDIA device here"


def usable_cores() -> int:
    """Cores this process may use: its affinity mask, cut to the container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or its quota is the word "max"
        return cores


def known_capability(build_info: Any) -> tuple[int, int]:
    """Newest compute capability that TensorFlow was built for, as (major, minor)."""
    names = build_info.get("cuda_compute_capabilities") or []
    digits = [re.sub(r"\D", "", name) for name in names]
    return max(((int(d[:-1]), int(d[-1])) for d in digits if len(d) > 1), default=(0, 0))


def gpu_capability(tf: Any) -> tuple[int, int]:
    """Highest compute capability of the GPUs; (0, 0) without one."""
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    found = (d.get("compute_capability") or (0, 0) for d in details)
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))


@functools.cache
def cpu_description() -> tuple[str, str]:
    """Model name of the CPU and its instruction sets, sorted."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or platform.machine(), ""
    model, flags = (
        re.search(rf"^(?:{keys})\s*:\s*(.*)$", text, re.M)
        for keys in ("model name|CPU part", "flags|Features")
    )
    words = flags.group(1).split() if flags else []
    return model.group(1) if model else platform.machine(), " ".join(sorted(words))


def _machine() -> str:
    """All that shapes machine code besides the program, which is all that XLA's own key holds."""
    files = ["/proc/driver/nvidia/version", *glob.glob("/proc/driver/nvidia/gpus/*/information")]
    texts = [Path(f).read_text(errors="replace") for f in sorted(files) if os.path.exists(f)]
    gpus = re.findall(r"^(?:Model|NVRM version):.*$", "\n".join(texts), re.M)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "all") if nvidia_gpu_plausible() else "none"
    flags = sorted(os.environ.get("XLA_FLAGS", "").split())
    return "\n".join([*cpu_description(), str(usable_cores()), *gpus, chosen, *flags])


def cache_folder(setting: bool | str | os.PathLike[str] = True) -> Path | None:
    """Folder of the programs compiled for this very machine; None where the cache is off.

    Args:
        setting: A folder, False for no cache, or True for what KYTOLLY_COMPILE_CACHE says (a
            folder or `off`), by default kytolly/xla in the user's cache folder.
    """
    wanted = os.environ.get("KYTOLLY_COMPILE_CACHE", "").strip() if setting is True else setting
    if wanted is False or str(wanted).lower() in OFF_WORDS:
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(wanted or Path(home) / "kytolly" / "xla").expanduser().absolute()
    try:
        version = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:  # tensorflow-cpu, nightly: by its location
        spec = importlib.util.find_spec("tensorflow")
        version = hashlib.sha256(repr(spec and spec.origin).encode()).hexdigest()[:6]
    digest = hashlib.sha256(_machine().encode()).hexdigest()
    return root / f"tf{version}-{platform.machine()}-{digest[:12]}"


def available_memory_bytes() -> int | None:
    """Memory that this process can still take, cut to a container's limit; None if unknown."""
    meminfo = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s*(\d+)", meminfo.read_text()) if meminfo.exists() else None
    if found is None:
        return None
    free = int(found.group(1)) * 1024
    try:
        names = [f"/sys/fs/cgroup/memory.{name}" for name in ("max", "current")]
        limit, used = (int(Path(name).read_text()) for name in names)
        return max(0, min(free, limit - used))
    except (OSError, ValueError):  # no cgroup v2, or the limit is the word "max"
        return free


class Check(NamedTuple):
    """One thing looked at, what is the case, and the one thing to do about it (or nothing).

    Status ok: works. warn: works, slower or smaller than it could. fail: does not work.
    """

    name: str
    status: str
    finding: str
    advice: str = ""


def diagnose() -> list[Check]:
    """All checks, in the order in which one failure explains the next."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its own words come out as findings
    checks = [_guarded("python", check_python), _guarded("backend", check_backend)]
    try:
        import tensorflow as tf
    except Exception as error:
        finding = f"import fails: {' '.join(str(error).split())[:300]}"
        advice = "pip install --force-reinstall 'tensorflow>=2.21,<2.22'"
        return [*checks, Check("tensorflow", "fail", finding, advice)]
    rows = [("tensorflow", check_tensorflow), ("gpu", check_gpu), ("cuda", check_cuda)]
    if tf.config.list_physical_devices("GPU"):
        rows += [("gpu memory", check_gpu_memory), ("capability", check_capability)]
    rows += [("precision", check_precision), ("xla", check_xla), ("threads", check_threads)]
    checks += [_guarded(name, check, tf) for name, check in rows]
    return [*checks, _guarded("compile cache", check_cache), _guarded("memory", check_memory)]


def _guarded(name: str, check: Any, *inputs: Any) -> Check:
    try:
        return check(*inputs)
    except Exception as error:  # a check that breaks is a finding, not the end of the others
        finding = f"could not be checked: {type(error).__name__}: {' '.join(str(error).split())}"
        return Check(name, "warn", finding[:300], "report this line to the project")


def check_python() -> Check:
    """Whether the interpreter is one that TensorFlow 2.21 has wheels for."""
    found = f"{platform.python_version()} at {sys.executable}"
    if (3, 10) <= sys.version_info[:2] <= (3, 13):
        return Check("python", "ok", found)
    return Check("python", "fail", found, "make a virtual environment with Python 3.10 to 3.13")


def check_backend() -> Check:
    """Whether Keras runs on TensorFlow."""
    backend, where = keras_backend()
    if backend != "tensorflow":
        return Check("backend", "fail", f"{where} {backend!r}", "set KERAS_BACKEND=tensorflow")
    return Check("backend", "ok", "Keras runs on tensorflow")


def check_tensorflow(tf: Any) -> Check:
    """Versions of TensorFlow and Keras against the ones this project is tested with."""
    keras_version = importlib.metadata.version("keras")
    finding = f"TensorFlow {tf.__version__}, Keras {keras_version}"
    if tf.__version__.startswith("2.21.") and keras_version.startswith("3."):
        return Check("tensorflow", "ok", finding)
    advice = "pip install 'tensorflow>=2.21,<2.22' 'keras>=3.13,<4'"
    return Check("tensorflow", "warn", f"{finding}; tested with 2.21 and 3.15", advice)


def driver_cuda_version() -> str | None:
    """CUDA version that the installed NVIDIA driver supports; None without a driver."""
    try:
        version = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
    except (OSError, AttributeError):
        return None


def check_gpu(tf: Any) -> Check:
    """The GPUs TensorFlow lists, or why it falls back to the CPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        names = ", ".join(d.get("device_name", "unknown GPU") for d in details)
        return Check("gpu", "ok", f"{len(gpus)}: {names}")
    finding = f"CPU only ({cpu_description()[0]}): "
    if not tf.test.is_built_with_cuda():
        advice = "pip install 'tensorflow[and-cuda]' (Linux, or Windows through WSL2)"
        return Check("gpu", "ok", finding + "this TensorFlow was built without CUDA", advice)
    if not nvidia_gpu_plausible():
        if "hides" in why_no_gpu():
            return Check("gpu", "warn", finding + why_no_gpu(), "unset CUDA_VISIBLE_DEVICES")
        return Check("gpu", "ok", finding + why_no_gpu())
    if driver_cuda_version() is None:
        smi = "nvidia-smi is there" if shutil.which("nvidia-smi") else "nvidia-smi is missing too"
        advice = "install the NVIDIA driver, or start the container with --gpus all"
        return Check("gpu", "fail", f"{finding}libcuda.so.1 cannot be loaded; {smi}", advice)
    advice = "pip install 'tensorflow[and-cuda]>=2.21,<2.22'"
    return Check("gpu", "fail", finding + "the CUDA libraries could not be loaded", advice)


def check_cuda(tf: Any) -> Check:
    """CUDA and cuDNN that TensorFlow was built for, against what is found."""
    build = tf.sysconfig.get_build_info()
    cuda, cudnn = (str(build.get(f"{name}_version", "none")) for name in ("cuda", "cudnn"))
    wanted = f"TensorFlow was built for CUDA {cuda}, cuDNN {cudnn}"
    if not nvidia_gpu_plausible():
        return Check("cuda", "ok", f"{wanted}; not needed without a GPU")
    wheels = {d.name.lower(): d.version for d in importlib.metadata.distributions() if d.name}
    found, driver = wheels.get("nvidia-cudnn-cu12"), driver_cuda_version() or "none"
    finding = f"{wanted}; driver: CUDA {driver}; cuDNN wheel: {found or 'none'}"
    if driver == "none" or int(driver.split(".")[0]) < int(cuda.split(".")[0]):
        return Check("cuda", "fail", finding, f"install an NVIDIA driver for CUDA {cuda}")
    if found and found.split(".")[0] != cudnn.split(".")[0]:
        return Check("cuda", "fail", finding, f"pip install 'nvidia-cudnn-cu12=={cudnn}.*'")
    return Check("cuda", "ok", finding)


def check_gpu_memory(tf: Any) -> Check:
    """Free memory of every GPU."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:
        return Check("gpu memory", "warn", f"cannot be read: {error}", "pip install nvidia-ml-py")
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    infos = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    finding = ", ".join(f"{i.free / 2**30:.1f} of {i.total / 2**30:.1f} GiB free" for i in infos)
    if min(i.free / i.total for i in infos) < 0.5:
        advice = "end the other processes (nvidia-smi lists them), or choose another GPU"
        return Check("gpu memory", "warn", finding, advice)
    return Check("gpu memory", "ok", finding)


def check_capability(tf: Any) -> Check:
    """Whether TensorFlow's compiler knows the GPU: XLA aborts the process on one it does not."""
    found, known = gpu_capability(tf), known_capability(tf.sysconfig.get_build_info())
    finding = f"GPU {found[0]}.{found[1]}, TensorFlow knows up to {known[0]}.{known[1]}"
    if (0, 0) < known < found:
        advice = "configure_gpu_optimization(enable_xla=False), or a newer TensorFlow"
        return Check("capability", "fail", finding, advice)
    return Check("capability", "ok", finding)


def check_precision(tf: Any) -> Check:
    """Where mixed precision can pay."""
    capability, flags = gpu_capability(tf), cpu_description()[1].split()
    if capability != (0, 0):
        fast = [
            n for n, least in (("float16", (7, 0)), ("bfloat16", (8, 0))) if capability >= least
        ]
        finding = f"tensor cores for {' and '.join(fast)}" if fast else "no tensor cores"
    else:
        units = [n for n in ("avx512_bf16", "amx_bf16", "avx512_fp16", "amx_fp16") if n in flags]
        finding = f"CPU with {', '.join(units)}" if units else "CPU without half-precision units"
    advice = "python gpu_optimize.py measures whether mixed precision pays for your network"
    return Check("precision", "ok", finding, advice)


def seconds_to_compile(tf: Any) -> float:
    """Seconds that a small program takes to be traced, compiled and run once."""
    start = time.perf_counter()
    program = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ x)), jit_compile=True)
    float(program(tf.zeros([8, 8])))
    return time.perf_counter() - start


def check_xla(tf: Any) -> Check:
    """Whether XLA compiles; beside a GPU in a process of its own, which XLA may abort."""
    if gpu_capability(tf) == (0, 0):
        seconds = seconds_to_compile(tf)
    elif check_capability(tf).status == "fail":
        return Check("xla", "fail", "not tried: it would abort on this GPU", "see capability")
    else:
        code = "import gpu_optimize, doctor; gpu_optimize.configure_gpu_optimization(verbose=False)"
        code += "; import tensorflow as tf; print(doctor.seconds_to_compile(tf))"
        command = [sys.executable, "-c", code]
        place = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=place)
        if run.returncode:
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            advice = "pip install nvidia-cuda-nvcc-cu12" if "libdevice" in run.stderr else "see gpu"
            return Check("xla", "fail", f"ended with status {run.returncode}: {last}"[:300], advice)
        seconds = float(run.stdout.split()[-1])
    finding = f"a small program compiled and ran in {seconds:.2f} s"
    if seconds > 5:
        return Check("xla", "warn", finding, "free a core: training programs take far longer")
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


def check_threads(tf: Any) -> Check:
    """TensorFlow's threads against the cores this process may use."""
    usable, total = usable_cores(), os.cpu_count() or 1
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
    free = available_memory_bytes()
    if free is None:
        return Check("memory", "ok", "unknown on this system")
    status, advice = "ok", ""
    if free < 2 * 2**30:
        status, advice = "warn", "lower replay_capacity, or end other programs"
    return Check("memory", status, f"{free / 2**30:.1f} GiB available", advice)


def print_checks(checks: list[Check]) -> None:
    """A table on standard output, then how many checks want attention."""
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


def main(json: bool = False) -> int:
    """`kytolly doctor`: 0 where nothing failed, else 1."""
    checks = diagnose()
    print(checks_as_json(checks)) if json else print_checks(checks)
    return int(any(check.status == "fail" for check in checks))
