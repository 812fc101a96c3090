"""The devices that train one agent together: GPUs, or for a test parts of the CPU."""

from __future__ import annotations

import tensorflow as tf


def names_of_several(device: str) -> tuple[str, ...]:
    """TensorFlow's names for `gpus`, `gpu:0,gpu:1` or `cpu:0,cpu:1`; () for less than two.

    Devices of the CPU are made here, before TensorFlow computes for the first time.

    Raises:
        ValueError: They are not of one kind, one is there twice, or there are fewer.
    """
    if device == "gpus":
        gpus = len(tf.config.list_physical_devices("GPU"))
        return tuple(f"/GPU:{number}" for number in range(gpus)) if gpus > 1 else ()
    if "," not in device:
        return ()
    pairs = [name.replace("cuda", "gpu").split(":") for name in device.split(",")]
    kinds, numbers = {kind for kind, _ in pairs}, [int(number) for _, number in pairs]
    if len(kinds) > 1 or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"device is {device!r}, expected different devices of one kind, as gpu:0,gpu:1. "
            "Change it."
        )
    kind = kinds.pop().upper()
    there = (
        count_cpus(max(numbers) + 1)
        if kind == "CPU"
        else len(tf.config.list_physical_devices("GPU"))
    )
    if max(numbers) >= there:
        names = ", ".join(f"{kind.lower()}:{number}" for number in range(there)) or "none"
        advice = "Name those, or run `kytolly doctor` to learn why there are no more."
        if kind == "CPU":
            advice = "Train before anything else computes in this process, or call " + (
                f"kytolly.machine.devices.count_cpus({max(numbers) + 1}) first."
            )
        raise ValueError(f"device is {device!r}, and TensorFlow sees {names}. {advice}")
    return tuple(f"/{kind}:{number}" for number in numbers)


def count_cpus(wanted: int) -> int:
    """Divide the CPU into so many devices, if TensorFlow has not started; returns how many are."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    present = tf.config.get_logical_device_configuration(cpu) or [None]
    if len(present) < wanted:
        try:
            part = tf.config.LogicalDeviceConfiguration()
            tf.config.set_logical_device_configuration(cpu, [part] * wanted)
        except RuntimeError:  # it has started
            return len(tf.config.list_logical_devices("CPU"))
    return max(len(present), wanted)
