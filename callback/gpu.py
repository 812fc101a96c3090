"""One GPU as NVIDIA's library sees it: its memory and how busy it is."""

from __future__ import annotations

import dataclasses
import importlib
import os
from typing import Any

MB = 2**20


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU as NVML sees it.

    Attributes:
        nvml: The module of nvidia-ml-py.
        handle: NVML's name for the GPU.
    """

    nvml: Any
    handle: Any

    @classmethod
    def of(cls, device: str) -> Gpu | None:
        """The GPU behind a device such as "/GPU:0"; None for a CPU, or without NVML."""
        kind, _, number = device.rpartition("GPU:")
        if not kind and not number.isdigit():
            return None
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            name = physical_name(int(number), os.environ.get("CUDA_VISIBLE_DEVICES"))
            if isinstance(name, int):
                return cls(nvml, nvml.nvmlDeviceGetHandleByIndex(name))
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(name))
        except Exception:  # no package, no driver, no permission: there are no metrics
            return None

    def metrics(self) -> dict[str, float]:
        """Memory in use in MB (by all processes) and utilization in percent, where known."""
        found: dict[str, float] = {}
        try:
            found["memory_mb"] = self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used / MB
            rates = self.nvml.nvmlDeviceGetUtilizationRates(self.handle)
            found["utilization"] = float(rates.gpu)
        except Exception:  # a slice of a GPU has no utilization; a driver may go away
            return found
        return found


def physical_name(number: int, visible: str | None) -> int | str:
    """NVML's index or UUID of TensorFlow's GPU `number`, from CUDA_VISIBLE_DEVICES."""
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    if number >= len(names):
        return number
    return int(names[number]) if names[number].isdigit() else names[number]
