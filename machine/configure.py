"""Prepares TensorFlow for the machine it is on: `configure_gpu_optimization()`.

Call it before anything else touches TensorFlow: the compile cache and libdevice travel in
environment variables that TensorFlow reads once, which is why the top of this file must not
import it. Run as a program, this file measures what it switches on (benchmarks/optimizations.py).
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, TextIO

from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError

from kytolly.machine import doctor

_CACHE_FLAG = "tf_xla_persistent_cache_directory"
_CUDA_FLAG = "xla_gpu_cuda_data_dir"
_MIN_FREE_BYTES = 200 * 2**20  # below this the cache is only read: a failed write ends the run
_MAX_CACHE_BYTES = 256 * 2**20  # every entry is read and checked at each start
_LATE = "call configure_gpu_optimization() before anything else touches TensorFlow"


@dataclasses.dataclass(frozen=True, slots=True)
class ReportItem:
    """One switch: whether it is on now, whether it was asked for, and what stood in the way."""

    name: str
    done: bool
    message: str
    reason: str = ""
    requested: bool = True

    def line(self) -> str:
        """The item as it is printed."""
        if self.done or not self.requested:
            return f"{'✅' if self.done else '○'} {self.message}"
        return f"⚠️  {self.message}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class OptimizationReport:
    """What `configure_gpu_optimization()` did, item by item, in the order it was done."""

    items: tuple[ReportItem, ...]

    def __getitem__(self, name: str) -> ReportItem:
        return {item.name: item for item in self.items}[name]

    def print(self, file: TextIO) -> None:
        """One line per item; a terminal without these characters gets question marks."""
        encoding = getattr(file, "encoding", None) or "utf-8"
        for item in self.items:
            print(item.line().encode(encoding, "replace").decode(encoding), file=file)

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON knows."""
        return dataclasses.asdict(self)


def _on(name: str, message: str, reason: str = "") -> ReportItem:
    return ReportItem(name, True, message, reason)


def _off(name: str, message: str, reason: str = "") -> ReportItem:
    return ReportItem(name, False, message, reason, requested=False)


def _failed(name: str, message: str, reason: object) -> ReportItem:
    return ReportItem(name, False, message, " ".join(str(reason).split()))


def require_tensorflow_backend() -> None:
    """Raises ValueError where Keras runs, or would run, on something other than TensorFlow."""
    found, where = doctor.keras_backend()
    if found != "tensorflow":
        raise ValueError(
            f"{where} {found!r}, expected 'tensorflow': training compiles Keras models into "
            "TensorFlow programs. Set KERAS_BACKEND=tensorflow before Python starts."
        )


def xla_enabled() -> bool:
    """Whether programs should be built with `jit_compile=True`.

    Kept in the environment variable KYTOLLY_XLA, so that worker processes inherit the answer.
    """
    return os.environ.get("KYTOLLY_XLA", "on").lower() not in doctor.OFF_WORDS


def _well_formed(data: bytes) -> bool:
    """Whether bytes are a whole protocol buffer: a cut, empty or zeroed file is not."""
    try:
        empty_pb2.Empty().ParseFromString(data)  # walks over fields that it does not know
    except DecodeError:
        return False
    return data[:1] not in (b"", b"\0")


def _checksums(folder: Path) -> dict[str, int]:
    try:
        return dict(json.loads((folder / "checksums.json").read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def record_checksums(folder: Path) -> None:
    """Writes down the checksum of every entry, for the next start to compare."""
    known, manifest = _checksums(folder), folder / "checksums.json"
    try:
        since = manifest.stat().st_mtime if known else 0.0
        for path in folder.glob("xla_compile_cache__*.pb"):
            if path.name not in known or path.stat().st_mtime > since:
                known[path.name] = zlib.crc32(path.read_bytes())
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(known, file)
        os.replace(file.name, manifest)
    except OSError:
        return


def sweep_cache(folder: Path) -> int:
    """Removes entries that are damaged, and the oldest beyond the size limit.

    TensorFlow raises at a damaged entry instead of compiling anew: one cut file would end every
    start. Returns the number of damaged entries.
    """
    for path in folder.glob("xla_compile_cache__*.tmp"):
        if time.time() - path.stat().st_mtime > 3600:  # a process that died while writing
            path.unlink(missing_ok=True)
    known, damaged, total = _checksums(folder), 0, 0
    files = sorted(folder.glob("xla_compile_cache__*.pb"), key=os.path.getmtime, reverse=True)
    for path in files:
        data = path.read_bytes()
        total += len(data)
        changed = path.name in known and known[path.name] != zlib.crc32(data)
        broken = changed or not _well_formed(data)
        damaged += broken
        if broken or total > _MAX_CACHE_BYTES:
            path.unlink(missing_ok=True)
    return damaged


def _add_flags(variable: str, flags: str) -> str:
    """Appends to a variable of flags; returns why that is impossible, or nothing."""
    before = os.environ.get(variable, "").strip()
    if before and not before.startswith("-"):
        return f"{variable} names a file of flags ({before}); write {flags} into it"
    os.environ[variable] = f"{before} {flags}".strip()
    return ""


def _flags_read() -> bool:
    """Whether TF_XLA_FLAGS was read already: with the list of devices, not with the import."""
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is None:
        return False
    return getattr(context.context(), "_physical_devices", None) is not None


def _compile_cache(setting: bool | str | os.PathLike[str]) -> ReportItem:
    """Points TensorFlow at this machine's cache, unless the user already did."""
    name, flags = "compile_cache", os.environ.get("TF_XLA_FLAGS", "")
    if _CACHE_FLAG in flags and setting is False:
        return _failed(name, "Compile cache stays on", "TF_XLA_FLAGS holds it; unset that")
    if _CACHE_FLAG in flags:
        return _on(name, "Compile cache set in TF_XLA_FLAGS", flags)
    missing = "No compile cache, so each start compiles anew"
    try:
        folder = doctor.cache_folder(setting)
        if folder is None:
            return _off(name, "Compile cache off")
        if _flags_read():
            return _failed(name, missing, f"TensorFlow has read its flags already; {_LATE}")
        if "'" in str(folder):
            return _failed(name, missing, f"TF_XLA_FLAGS cannot hold a quote: {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        read_only = shutil.disk_usage(folder).free < _MIN_FREE_BYTES
        if not read_only:
            tempfile.TemporaryFile(dir=folder).close()  # raises where nothing can be written
        damaged = sweep_cache(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        return _failed(name, missing, f"{error}; set KYTOLLY_COMPILE_CACHE to another folder")
    problem = _add_flags(
        "TF_XLA_FLAGS",
        f"--{_CACHE_FLAG}='{folder}' --tf_xla_persistent_cache_device_types=CPU,GPU"
        + " --tf_xla_persistent_cache_read_only=true" * read_only,
    )
    if problem:
        return _failed(name, missing, problem)
    if not read_only:
        atexit.register(record_checksums, folder)
    if not doctor.nvidia_gpu_plausible() and "avx512f" in doctor.cpu_description()[1]:
        # Each load of a cached CPU program logs 4 kB of a false alarm (openxla/xla issue 44565).
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    notes = [f"{damaged} damaged entries removed"] * bool(damaged)
    notes += ["read only: the disk is full"] * read_only
    return _on(name, f"Compile cache in {folder}" + f" ({'; '.join(notes)})" * bool(notes))


def find_libdevice() -> Path | None:
    """CUDA folder with XLA's device library: the nvidia-cuda-nvcc wheel's, or an installed one."""
    spec = importlib.util.find_spec("nvidia")
    wheels = (
        [Path(p) / "cuda_nvcc" for p in (spec.submodule_search_locations or [])] if spec else []
    )
    named = [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    for folder in [*wheels, *named, Path("/usr/local/cuda"), Path("/opt/cuda")]:
        if (folder / "nvvm" / "libdevice" / "libdevice.10.bc").is_file():
            return folder
    return None


def _libdevice() -> ReportItem:
    name, folder = "libdevice", find_libdevice()
    if _CUDA_FLAG in os.environ.get("XLA_FLAGS", ""):
        return _on(name, "CUDA folder for XLA set in XLA_FLAGS")
    if folder is None:
        reason = "libdevice.10.bc was not found; pip install nvidia-cuda-nvcc-cu12"
        return _failed(name, "XLA may not find CUDA's device library", reason)
    problem = _add_flags("XLA_FLAGS", f"--{_CUDA_FLAG}='{folder}'")
    message = f"XLA uses the CUDA files in {folder}"
    return _failed(name, message, problem) if problem else _on(name, message)


def _gpu_memory(tf: Any, gpus: list, growth: bool, limit_mb: int | None) -> ReportItem:
    """Memory growth or a limit, the same on all GPUs, as TensorFlow demands."""
    if not gpus:
        message = f"No GPU: TensorFlow uses the CPU ({doctor.usable_cores()} cores)"
        return _failed("gpu", message, f"{doctor.why_no_gpu()}; see `kytolly doctor`")
    name, config = "memory_growth" if limit_mb is None else "memory_limit", tf.config
    words = "enabled" if growth else "disabled: each takes all its memory at once"
    message = f"Configured {len(gpus)} GPU(s) with memory growth {words}"
    try:
        for gpu in gpus:
            if limit_mb is None and config.experimental.get_memory_growth(gpu) != growth:
                config.experimental.set_memory_growth(gpu, growth)
            elif limit_mb is not None:
                device = config.LogicalDeviceConfiguration(memory_limit=limit_mb)
                config.set_logical_device_configuration(gpu, [device])
    except (RuntimeError, ValueError) as error:
        return _failed(name, "GPU memory left as it was", f"{error}; {_LATE}")
    limited = f"Configured {len(gpus)} GPU(s) with a memory limit of {limit_mb} MB"
    return _on(name, message if limit_mb is None else limited)


def _threads(tf: Any, intra: int | None, inter: int | None) -> ReportItem:
    """Threads inside one operation and between operations; None leaves TensorFlow's choice."""
    cores, threading = doctor.usable_cores(), tf.config.threading
    if intra is None and cores < len(getattr(os, "sched_getaffinity", lambda _: [])(0)):
        intra = cores  # TensorFlow counts the machine's cores, not the container's share of them
    if intra is None and inter is None:
        return _off("threads", f"Threads left to TensorFlow ({cores} cores)")
    message = f"Threads: {intra or 'default'} within, {inter or 'default'} between operations"
    try:
        if intra not in (None, threading.get_intra_op_parallelism_threads()):
            threading.set_intra_op_parallelism_threads(intra)
        if inter not in (None, threading.get_inter_op_parallelism_threads()):
            threading.set_inter_op_parallelism_threads(inter)
    except RuntimeError as error:
        return _failed("threads", "Threads left as they were", f"{error}; {_LATE}")
    return _on("threads", message)


def _xla(tf: Any, capability: tuple[int, int], enable: bool, auto: bool) -> list[ReportItem]:
    """Explicit compilation (what xla_enabled() answers), and TensorFlow's auto-clustering."""
    known = doctor.known_capability(tf.sysconfig.get_build_info())
    too_new = (0, 0) < known < capability and os.environ.get("KYTOLLY_XLA") != "force"
    if enable and too_new:
        reason = f"compute capability {capability}, TensorFlow knows up to {known} and would abort"
        item = _failed("xla", "XLA left off", f"{reason}; KYTOLLY_XLA=force tries all the same")
    elif enable:
        item = _on("xla", "XLA compilation enabled")
    else:
        item = _off("xla", "XLA compilation off: programs run uncompiled")
    if not (enable and os.environ.get("KYTOLLY_XLA") == "force"):
        os.environ["KYTOLLY_XLA"] = "on" if item.done else "off"
    if auto != bool(tf.config.optimizer.get_jit()):
        tf.config.optimizer.set_jit("autoclustering" if auto else False)
    if not auto:
        return [item]
    message = "XLA auto-clustering enabled: it has returned wrong results (tensorflow#125686)"
    return [item, _on("auto_clustering", message)]


def _precision(capability: tuple[int, int], enable: bool, dtype: str) -> ReportItem:
    """Keras's global policy; an earlier call's mixed precision is undone where it is off."""
    if not enable and "keras" not in sys.modules:
        return _off("mixed_precision", "Mixed precision off (float32)")
    keras = importlib.import_module("keras")
    wanted = f"mixed_{dtype}" if enable else "float32"
    if enable or keras.mixed_precision.dtype_policy().name.startswith("mixed_"):
        keras.mixed_precision.set_dtype_policy(wanted)
    if not enable:
        return _off("mixed_precision", "Mixed precision off (float32)")
    slow = capability < ((7, 0) if dtype == "float16" else (8, 0))
    reason = "no tensor cores for it here: likely slower than float32; measure" if slow else ""
    return _on(
        "mixed_precision", f"Mixed precision enabled ({dtype})" + f", {reason}" * slow, reason
    )


def _tf32(tf: Any, capability: tuple[int, int], enable: bool) -> ReportItem:
    tf.config.experimental.enable_tensor_float_32_execution(enable)
    if not enable:
        return _off("tf32", "TF32 off: float32 matrices are multiplied in full precision")
    if capability < (8, 0):
        return _failed("tf32", "TF32 has no effect", f"compute capability {capability}, needs 8.0")
    return _on("tf32", "TF32 enabled for float32 matrix products")


def _refuse_bad_numbers(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or value is True or value < 1):
            raise ValueError(f"{name} is {value!r}, expected a whole number from 1. Change it.")


def _refuse_bad_dtype(dtype: str) -> None:
    if dtype not in ("float16", "bfloat16"):
        raise ValueError(
            f"mixed_precision_dtype is {dtype!r}, expected 'float16' or 'bfloat16'. Pass one."
        )


def configure_gpu_optimization(
    enable_xla: bool = True,
    enable_mixed_precision: bool = False,
    memory_growth: bool = True,
    verbose: bool = True,
    *,
    memory_limit_mb: int | None = None,
    mixed_precision_dtype: str = "float16",
    enable_tf32: bool = True,
    num_intra_threads: int | None = None,
    num_inter_threads: int | None = None,
    compile_cache: bool | str | os.PathLike[str] = True,
    enable_auto_clustering: bool = False,
    file: TextIO | None = None,
) -> OptimizationReport:
    """Sets TensorFlow up for speed; safe to call twice, and on a machine without a GPU.

    Args:
        enable_xla: Compile programs with XLA, explicitly; see `xla_enabled()`.
        enable_mixed_precision: Compute in `mixed_precision_dtype`, keep weights in float32.
        memory_growth: Let GPU memory grow with use; a memory limit replaces it.
        verbose: Print one line per item.
        memory_limit_mb: GPU memory that this process may take, in MB (2**20 bytes).
        mixed_precision_dtype: float16 (wants loss scaling) or bfloat16.
        enable_tf32: Multiply float32 matrices with 10-bit mantissas where the GPU can.
        num_intra_threads: Threads within one operation; None: TensorFlow's choice.
        num_inter_threads: Threads between operations; None: TensorFlow's choice.
        compile_cache: Keep compiled programs: True, False, or a folder; see `cache_folder()`.
        enable_auto_clustering: TensorFlow's own choice of what to compile. It has returned wrong
            results (tensorflow#125686) and gains little.
        file: Where to print; standard output by default.

    Raises:
        ValueError: For an argument out of range, or another Keras backend than TensorFlow. The
            machine never makes it raise: what could not be done is in the report.
    """
    _refuse_bad_numbers(
        memory_limit_mb=memory_limit_mb,
        num_intra_threads=num_intra_threads,
        num_inter_threads=num_inter_threads,
    )
    _refuse_bad_dtype(mixed_precision_dtype)
    require_tensorflow_backend()
    items = [_libdevice()] if doctor.nvidia_gpu_plausible() else []
    items.append(_compile_cache(compile_cache))
    tf = importlib.import_module("tensorflow")
    gpus = tf.config.list_physical_devices("GPU")
    capability = doctor.gpu_capability(tf)
    items.append(_gpu_memory(tf, gpus, memory_growth, memory_limit_mb))
    items.append(_threads(tf, num_intra_threads, num_inter_threads))
    items += _xla(tf, capability, enable_xla, enable_auto_clustering)
    items += [_tf32(tf, capability, enable_tf32)] if gpus else []
    items.append(_precision(capability, enable_mixed_precision, mixed_precision_dtype))
    report = OptimizationReport(tuple(items))
    if verbose:
        report.print(file or sys.stdout)
    return report


if __name__ == "__main__":
    raise SystemExit(importlib.import_module("kytolly.benchmarks.optimizations").main())
