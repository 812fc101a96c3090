"""The GPUs that CUDA shows to this process, read through NVIDIA's library NVML.

NVML lists all GPUs of the machine, by the number of their slot. CUDA, and so TensorFlow, sees those
that CUDA_VISIBLE_DEVICES names, in its order; without CUDA_DEVICE_ORDER=PCI_BUS_ID it counts them
from the fastest one. Nothing here imports TensorFlow.

Source: CUDA C++ Programming Guide, "CUDA environment variables"; NVIDIA's MIG User Guide, "CUDA
device enumeration".
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from kytolly.machine.hardware import named_gpus

MB = 2**20
Handle = object  # NVML's pointer to a GPU, or to a MIG instance of one


class UnknownGpu(Exception):
    """NVML cannot tell which GPU CUDA means; the message says why."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance of it.

    Attributes:
        nvml: The module of nvidia-ml-py.
        handle: NVML's name for it.
    """

    nvml: ModuleType
    handle: Handle

    @classmethod
    def of(cls, device: str) -> Gpu | None:
        """The GPU behind a device such as "/GPU:0"; None for a CPU, or where NVML cannot tell."""
        _, kind, number = device.rpartition("GPU:")
        if not kind or not number.isdecimal():
            return None
        try:
            return visible_gpus()[int(number)]
        except Exception:  # no package, no driver, no permission, no such GPU
            return None

    def memory(self) -> Any:
        """Its memory in bytes, with the attributes `free`, `used` and `total`: all processes'."""
        return self.nvml.nvmlDeviceGetMemoryInfo(self.handle)

    def metrics(self) -> dict[str, float]:
        """Memory in use in MB (by all processes) and utilization in percent, where known."""
        known: dict[str, float] = {}
        try:
            known["memory_mb"] = self.memory().used / MB
            rates = self.nvml.nvmlDeviceGetUtilizationRates(self.handle)
            known["utilization"] = float(rates.gpu)
        except Exception:  # a MIG instance has no utilization; a driver may go away
            return known
        return known


def visible_gpus() -> list[Gpu]:
    """The GPUs in the order of their numbers in TensorFlow.

    Raises:
        Exception: There is no NVML, no driver or no permission.
        UnknownGpu: A number may mean several GPUs.
    """
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    names = named_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if names is None:
        names = [str(number) for number in range(len(gpus))]
    handles = []
    for name in names:
        if name.isdecimal():
            handle = gpu_by_number(nvml, gpus, int(name))
        else:
            handle = gpu_by_uuid(nvml, gpus, name)
        if handle is None:  # CUDA ignores what follows
            break
        handles.append(handle)
    return [Gpu(nvml, handle) for handle in handles]


def gpu_by_number(nvml: ModuleType, gpus: list[Handle], number: int) -> Handle | None:
    """The GPU that CUDA counts by a number; None where there are fewer.

    Raises:
        UnknownGpu: CUDA counts from the fastest one, and they differ.
    """
    if number >= len(gpus):
        return None
    by_slot = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not by_slot and len({nvml.nvmlDeviceGetName(gpu) for gpu in gpus}) > 1:
        raise UnknownGpu("the GPUs differ, and CUDA counts them from the fastest one")
    return next(mig_instances(nvml, gpus[number]), gpus[number])


def gpu_by_uuid(nvml: ModuleType, gpus: list[Handle], name: str) -> Handle | None:
    """The GPU or MIG instance whose UUID begins so; None where none does, or several do."""
    if name.startswith("MIG-GPU-"):  # of drivers before 470: MIG-GPU-UUID/INSTANCE/COMPUTE
        return nvml.nvmlDeviceGetHandleByUUID(name)
    known = gpus
    if name.startswith("MIG-"):
        known = [instance for gpu in gpus for instance in mig_instances(nvml, gpu)]
    fitting = [gpu for gpu in known if uuid(nvml, gpu).startswith(name)]
    if len(fitting) != 1:
        return None
    return next(mig_instances(nvml, fitting[0]), fitting[0])


def uuid(nvml: ModuleType, handle: Handle) -> str:
    """The UUID of a GPU or MIG instance; older packages give bytes."""
    text = nvml.nvmlDeviceGetUUID(handle)
    return text.decode() if isinstance(text, bytes) else text


def mig_instances(nvml: ModuleType, gpu: Handle) -> Iterator[Handle]:
    """The MIG instances that a GPU is divided into; none where it is whole."""
    try:
        is_divided = nvml.nvmlDeviceGetMigMode(gpu)[0] == 1
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if is_divided else 0
    except Exception:  # GPUs without MIG, and MIG instances, refuse the question
        return
    for number in range(count):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
        except Exception:  # a place that no instance takes
            continue
