"""Switches of TensorFlow and XLA: how flags reach them, and the report of which are on.

Flags travel in environment variables, which are read once.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any, TextIO

from kytolly.machine.facts import OFF_WORDS

LATE = "call configure_gpu_optimization() before anything else touches TensorFlow"
AUTO_JIT_FLAG = "tf_xla_auto_jit"
CUDA_FLAG = "xla_gpu_cuda_data_dir"
TRITON_FLAG = "xla_gpu_enable_triton_gemm"


@dataclasses.dataclass(frozen=True, slots=True)
class ReportItem:
    """One switch: whether it is on now, whether it was asked for, and what prevented it."""

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
    """The steps of `configure_gpu_optimization()`, item by item, in their order."""

    items: tuple[ReportItem, ...]

    def __getitem__(self, name: str) -> ReportItem:
        return {item.name: item for item in self.items}[name]

    def print(self, file: TextIO) -> None:
        """Print one line per item; a terminal without these characters gets question marks."""
        encoding = getattr(file, "encoding", None) or "utf-8"
        for item in self.items:
            print(item.line().encode(encoding, "replace").decode(encoding), file=file)

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON knows."""
        return dataclasses.asdict(self)


def item_on(name: str, message: str, reason: str = "") -> ReportItem:
    """An item that is on; a reason is something to know about it."""
    return ReportItem(name, True, message, reason)


def item_off(name: str, message: str) -> ReportItem:
    """An item that nobody asked for."""
    return ReportItem(name, False, message, requested=False)


def item_failed(name: str, message: str, reason: object) -> ReportItem:
    """An item that was asked for and could not be done."""
    return ReportItem(name, False, message, " ".join(str(reason).split()))


def add_flags(variable: str, flags: str) -> str:
    """Appends to a variable of flags; returns why that is impossible, or nothing."""
    before = os.environ.get(variable, "").strip()
    if before and not before.startswith("-"):
        return f"{variable} names a file of flags ({before}); write {flags} into it"
    os.environ[variable] = f"{before} {flags}".strip()
    return ""


def flags_were_read() -> bool:
    """True where TF_XLA_FLAGS was read already: with the list of devices, not with the import."""
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is None:
        return False
    return getattr(context.context(), "_physical_devices", None) is not None


def variable_items() -> list[ReportItem]:
    """The effect of other programs' switches, set in environment variables."""
    items = []
    name = "TF_ENABLE_AUTO_MIXED_PRECISION"
    if value := os.environ.get(name, ""):
        message = f"{name}={value} has no effect"
        reason = "TensorFlow does not read it; pass enable_mixed_precision=True"
        is_off = value.lower() in OFF_WORDS
        item = item_off(name, message) if is_off else item_failed(name, message, reason)
        items.append(item)
    values = re.findall(rf"--{AUTO_JIT_FLAG}(?:[= ]+|$)(\S*)", os.environ.get("TF_XLA_FLAGS", ""))
    if values:  # TensorFlow takes the last one
        message = f"{AUTO_JIT_FLAG}={values[-1]} in TF_XLA_FLAGS: XLA auto-clustering"
        wrong = "it has returned wrong results (tensorflow#125686); remove the flag"
        is_off = values[-1] in ("0", "-1")
        items.append(
            item_off(AUTO_JIT_FLAG, f"{message} off")
            if is_off
            else item_failed(AUTO_JIT_FLAG, f"{message} on", wrong)
        )
    return items


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
    name = "libdevice"
    folder = find_libdevice()
    if CUDA_FLAG in os.environ.get("XLA_FLAGS", ""):
        return item_on(name, "CUDA folder for XLA set in XLA_FLAGS")
    if folder is None:
        reason = "libdevice.10.bc was not found; pip install nvidia-cuda-nvcc-cu12"
        return item_failed(name, "XLA may not find CUDA's device library", reason)
    problem = add_flags("XLA_FLAGS", f"--{CUDA_FLAG}='{folder}'")
    message = f"XLA uses the CUDA files in {folder}"
    return item_failed(name, message, problem) if problem else item_on(name, message)


def use_cublas() -> ReportItem:
    """Take matrix products from cuBLAS, unless the user chose.

    XLA's own ones are made by Triton: dozens for each shape, to be compared, which takes as long as
    compiling all the rest.
    """
    name = "matrix_products"
    if TRITON_FLAG in os.environ.get("XLA_FLAGS", ""):
        return item_on(name, f"{TRITON_FLAG} set in XLA_FLAGS")
    problem = add_flags("XLA_FLAGS", f"--{TRITON_FLAG}=false")
    message = "Matrix products by cuBLAS: XLA compiles in half the time"
    return item_failed(name, message, problem) if problem else item_on(name, message)
