"""Flags for TensorFlow and XLA, which travel in environment variables and are read once."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from kytolly.machine.report import ReportItem, item_failed, item_on

LATE = "call configure_gpu_optimization() before anything else touches TensorFlow"
CUDA_FLAG = "xla_gpu_cuda_data_dir"
OFF_WORDS = ("off", "0", "false")


def add_flags(variable: str, flags: str) -> str:
    """Appends to a variable of flags; returns why that is impossible, or nothing."""
    before = os.environ.get(variable, "").strip()
    if before and not before.startswith("-"):
        return f"{variable} names a file of flags ({before}); write {flags} into it"
    os.environ[variable] = f"{before} {flags}".strip()
    return ""


def flags_were_read() -> bool:
    """Whether TF_XLA_FLAGS was read already: with the list of devices, not with the import."""
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is None:
        return False
    return getattr(context.context(), "_physical_devices", None) is not None


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


def use_libdevice() -> ReportItem:
    """Point XLA to CUDA's device library, unless the user already did."""
    name, folder = "libdevice", find_libdevice()
    if CUDA_FLAG in os.environ.get("XLA_FLAGS", ""):
        return item_on(name, "CUDA folder for XLA set in XLA_FLAGS")
    if folder is None:
        reason = "libdevice.10.bc was not found; pip install nvidia-cuda-nvcc-cu12"
        return item_failed(name, "XLA may not find CUDA's device library", reason)
    problem = add_flags("XLA_FLAGS", f"--{CUDA_FLAG}='{folder}'")
    message = f"XLA uses the CUDA files in {folder}"
    return item_failed(name, message, problem) if problem else item_on(name, message)
