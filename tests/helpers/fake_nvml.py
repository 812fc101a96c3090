"""A stand-in for nvidia-ml-py: GPUs of any model, some divided into MIG instances."""

import sys
import types

MIB = 2**20


class FakeGpu:
    """One GPU or MIG instance; memory in MiB."""

    def __init__(self, uuid, free=0, total=1000, name="NVIDIA L4", utilization=37, instances=()):
        self.uuid, self.name, self.utilization = uuid, name, utilization
        self.free, self.total, self.instances = free, total, instances


def install(monkeypatch, *gpus, visible=None, order=None):
    """Make these the GPUs of this machine, with the variables of CUDA as given."""
    for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)

    def memory(gpu):
        free, total = gpu.free * MIB, gpu.total * MIB
        return types.SimpleNamespace(free=free, total=total, used=total - free)

    def rates(gpu):
        if gpu.utilization is None:
            raise RuntimeError("Not Supported")
        return types.SimpleNamespace(gpu=gpu.utilization)

    def instance(gpu, number):
        if gpu.instances[number] is None:
            raise RuntimeError("Not Found")
        return gpu.instances[number]

    def mig_mode(gpu):
        if gpu.instances is None:
            raise RuntimeError("Not Supported")
        return [int(bool(gpu.instances))] * 2

    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda number: gpus[number],
        nvmlDeviceGetName=lambda gpu: gpu.name,
        nvmlDeviceGetUUID=lambda gpu: gpu.uuid,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: len(gpu.instances),
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml
