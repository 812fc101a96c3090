"""Cores, processor and GPU of this machine.

Nothing here imports TensorFlow: some of these answers are needed before its first import.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import math
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any


def named_gpus(visible: str | None) -> list[str] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES names: indices and UUIDs; None: it hides none.

    CUDA ignores what follows the first name that no GPU can have, so `-1` and an empty text hide
    all.
    """
    if visible is None:
        return None
    names = []
    for name in map(str.strip, visible.split(",")):
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return names


def all_hidden() -> bool:
    """True where CUDA_VISIBLE_DEVICES hides every GPU."""
    return named_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")) == []


def nvidia_gpu_plausible() -> bool:
    """True where a visible NVIDIA GPU may exist; answers without TensorFlow or CUDA."""
    if all_hidden():
        return False
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


def why_no_gpu() -> str:
    """The likeliest reason that TensorFlow lists no GPU."""
    if nvidia_gpu_plausible():
        return "an NVIDIA device exists, but its driver or the CUDA libraries could not be loaded"
    return (
        "CUDA_VISIBLE_DEVICES hides every GPU" if all_hidden() else "there is no NVIDIA device here"
    )


def driver_cuda_version() -> str | None:
    """CUDA version that the installed NVIDIA driver supports; None without a driver."""
    try:
        version = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
    except (OSError, AttributeError):
        return None


def known_capability(build_info: Mapping[str, Any]) -> tuple[int, int]:
    """Newest compute capability that TensorFlow was built for, as (major, minor)."""
    names = build_info.get("cuda_compute_capabilities") or []
    digits = [re.sub(r"\D", "", name) for name in names]
    return max(((int(d[:-1]), int(d[-1])) for d in digits if len(d) > 1), default=(0, 0))


def gpu_capability(tf: ModuleType) -> tuple[int, int]:
    """Highest compute capability of the GPUs; (0, 0) without one."""
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    capabilities = (d.get("compute_capability") or (0, 0) for d in details)
    return max(((int(major), int(minor)) for major, minor in capabilities), default=(0, 0))


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


def usable_cores() -> int:
    """Cores this process may use: its affinity mask, cut to the container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or its quota is the word "max"
        return cores
