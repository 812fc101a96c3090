"""Sets TensorFlow up for the machine it is on: `configure_gpu_optimization()`.

Call it before anything else touches TensorFlow: the compile cache and libdevice travel in
environment variables that TensorFlow reads once, so the top of this file must not import it.
What was configured stays in environment variables and in TensorFlow, never in this module.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TextIO

from kytolly.machine import facts, hardware
from kytolly.machine.switches import (
    LATE,
    OptimizationReport,
    ReportItem,
    item_failed,
    item_off,
    item_on,
    use_cublas,
    use_libdevice,
    variable_items,
)


def set_gpu_memory(tf: ModuleType, gpus: list, growth: bool, limit_mb: int | None) -> ReportItem:
    """Set memory growth or a limit, the same on all GPUs, as TensorFlow demands."""
    if not gpus:
        message = f"No GPU: TensorFlow uses the CPU ({hardware.usable_cores()} cores)"
        return item_failed("gpu", message, f"{hardware.why_no_gpu()}; see `kytolly doctor`")
    name = "memory_growth" if limit_mb is None else "memory_limit"
    config = tf.config
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
        return item_failed(name, "GPU memory left as it was", f"{error}; {LATE}")
    limited = f"Configured {len(gpus)} GPU(s) with a memory limit of {limit_mb} MB"
    return item_on(name, message if limit_mb is None else limited)


def set_threads(tf: ModuleType, intra: int | None, inter: int | None) -> ReportItem:
    """Set the threads within and between operations; None leaves TensorFlow's choice."""
    cores = hardware.usable_cores()
    threading = tf.config.threading
    chosen = "TF_NUM_INTRAOP_THREADS" in os.environ  # which TensorFlow reads itself
    if (
        intra is None
        and not chosen
        and cores < len(getattr(os, "sched_getaffinity", lambda _: [])(0))
    ):
        intra = cores  # TensorFlow counts the machine's cores, not the container's share of them
    if intra is None and inter is None:
        return item_off("threads", f"Threads left to TensorFlow ({cores} cores)")
    message = f"Threads: {intra or 'default'} within, {inter or 'default'} between operations"
    try:
        if intra not in (None, threading.get_intra_op_parallelism_threads()):
            threading.set_intra_op_parallelism_threads(intra)
        if inter not in (None, threading.get_inter_op_parallelism_threads()):
            threading.set_inter_op_parallelism_threads(inter)
    except RuntimeError as error:
        return item_failed("threads", "Threads left as they were", f"{error}; {LATE}")
    return item_on("threads", message)


def set_xla(
    tf: ModuleType, capability: tuple[int, int], enable: bool, auto: bool
) -> list[ReportItem]:
    """Set explicit compilation (what xla_enabled() answers) and TensorFlow's auto-clustering."""
    known = hardware.known_capability(tf.sysconfig.get_build_info())
    too_new = (0, 0) < known < capability and os.environ.get("KYTOLLY_XLA") != "force"
    if enable and too_new:
        reason = f"compute capability {capability}, TensorFlow knows up to {known} and would abort"
        item = item_failed("xla", "XLA left off", f"{reason}; KYTOLLY_XLA=force tries it anyway")
    elif enable:
        item = item_on("xla", "XLA compilation enabled")
    else:
        item = item_off("xla", "XLA compilation off: programs run uncompiled")
    if not (enable and os.environ.get("KYTOLLY_XLA") == "force"):
        os.environ["KYTOLLY_XLA"] = "on" if item.done else "off"
    if auto != bool(tf.config.optimizer.get_jit()):
        tf.config.optimizer.set_jit("autoclustering" if auto else False)
    if not auto:
        return [item]
    message = "XLA auto-clustering enabled: it has returned wrong results (tensorflow#125686)"
    return [item, item_on("auto_clustering", message)]


def set_precision(capability: tuple[int, int], enable: bool, dtype: str) -> ReportItem:
    """Set Keras's global policy; turning it off undoes an earlier call's mixed precision."""
    if not enable and "keras" not in sys.modules:
        return item_off("mixed_precision", "Mixed precision off (float32)")
    keras = importlib.import_module("keras")
    wanted = f"mixed_{dtype}" if enable else "float32"
    if enable or keras.mixed_precision.dtype_policy().name.startswith("mixed_"):
        keras.mixed_precision.set_dtype_policy(wanted)
    if not enable:
        return item_off("mixed_precision", "Mixed precision off (float32)")
    slow = capability < ((7, 0) if dtype == "float16" else (8, 0))
    reason = "no tensor cores for it here: likely slower than float32; measure" if slow else ""
    return item_on(
        "mixed_precision", f"Mixed precision enabled ({dtype})" + f", {reason}" * slow, reason
    )


def set_tf32(tf: ModuleType, capability: tuple[int, int], enable: bool) -> ReportItem:
    """Set whether GPUs multiply float32 matrices with 10-bit mantissas."""
    tf.config.experimental.enable_tensor_float_32_execution(enable)
    if not enable:
        return item_off("tf32", "TF32 off: float32 matrices are multiplied in full precision")
    if capability < (8, 0):
        return item_failed(
            "tf32", "TF32 has no effect", f"compute capability {capability}, needs 8.0"
        )
    return item_on("tf32", "TF32 enabled for float32 matrix products")


def check_arguments(dtype: str, **counts: int | None) -> None:
    """Refuse a format that mixed precision lacks, and a count that is no whole number from 1."""
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or value is True or value < 1):
            raise ValueError(f"{name} is {value!r}, expected a whole number from 1. Change it.")
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
    """Set TensorFlow up for speed; safe to call twice, and on a machine without a GPU.

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
        compile_cache: Keep compiled programs: True, False, or a folder; see
            `compile_cache.cache_folder()`.
        enable_auto_clustering: Let TensorFlow choose what to compile. It has returned wrong
            results (tensorflow#125686) and gains little.
        file: Where to print; standard output by default.

    Raises:
        ValueError: An argument is out of range, or Keras has another backend than TensorFlow.
            The machine is never a reason to raise: the report says what could not be done.
    """
    check_arguments(
        mixed_precision_dtype,
        memory_limit_mb=memory_limit_mb,
        num_intra_threads=num_intra_threads,
        num_inter_threads=num_inter_threads,
    )
    facts.require_tensorflow_backend()
    from kytolly.machine.compile_cache import use_compile_cache

    items = [use_libdevice(), use_cublas()] if hardware.nvidia_gpu_plausible() else []
    items.append(use_compile_cache(compile_cache))
    tf = importlib.import_module("tensorflow")
    gpus = tf.config.list_physical_devices("GPU")
    capability = hardware.gpu_capability(tf)
    items.append(set_gpu_memory(tf, gpus, memory_growth, memory_limit_mb))
    items.append(set_threads(tf, num_intra_threads, num_inter_threads))
    items += set_xla(tf, capability, enable_xla, enable_auto_clustering)
    items += [set_tf32(tf, capability, enable_tf32)] if gpus else []
    items.append(set_precision(capability, enable_mixed_precision, mixed_precision_dtype))
    report = OptimizationReport((*items, *variable_items()))
    if verbose:
        report.print(file or sys.stdout)
    return report
