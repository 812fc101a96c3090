"""The device that trains."""

from __future__ import annotations

import tensorflow as tf


def device_name(device: str) -> str | None:
    """TensorFlow's name for `auto`, `cpu`, `gpu` or `gpu:N`; None leaves the choice to it.

    `cuda` is another word for `gpu`.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if device == "auto":
        return "/GPU:0" if gpus else None
    if device == "cpu":
        return "/CPU:0"
    kind, _, number = device.partition(":")
    if kind not in ("gpu", "cuda") or not (number or "0").isdigit():
        raise ValueError(f"device is {device!r}, expected auto, cpu, gpu or gpu:N.")
    if int(number or 0) >= gpus:
        raise ValueError(
            f"device is {device!r}, and TensorFlow sees {gpus} GPU(s) on this machine. Choose "
            "device='auto', or run `kytolly doctor` to learn why there is none."
        )
    return f"/GPU:{number or 0}"
