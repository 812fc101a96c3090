"""The basis of a training: Keras's backend, XLA, the device, and the free memory.

Importing it loads no TensorFlow: some of these answers are needed before that.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

OFF_WORDS = ("off", "0", "false")


def keras_backend() -> tuple[str, str]:
    """The backend that Keras runs on, or would when imported, and what says so."""
    if hasattr(sys.modules.get("keras"), "backend"):
        return sys.modules["keras"].backend.backend(), "Keras is loaded with the backend"
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"], "the environment variable KERAS_BACKEND is"
    try:
        path = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
        return json.loads(path.read_text()).get("backend", "tensorflow"), f"{path} has the backend"
    except (OSError, ValueError, AttributeError, RuntimeError):
        return "tensorflow", "Keras's default is"


def require_tensorflow_backend() -> None:
    """Raise ValueError where Keras runs, or would run, on something other than TensorFlow."""
    backend, where = keras_backend()
    if backend != "tensorflow":
        raise ValueError(
            f"{where} {backend!r}, expected 'tensorflow': training compiles Keras models into "
            "TensorFlow programs. Set KERAS_BACKEND=tensorflow before Python starts."
        )


def xla_enabled() -> bool:
    """True where programs should be built with `jit_compile=True`.

    Kept in the environment variable KYTOLLY_XLA, so that worker processes inherit the answer.
    """
    return os.environ.get("KYTOLLY_XLA", "on").lower() not in OFF_WORDS


def device_name(device: str) -> str | None:
    """TensorFlow's name for `auto`, `cpu`, `gpu` or `gpu:N`; None leaves the choice to it.

    `cuda` is another word for `gpu`. Of several, as `machine.devices` has them, it is the first.
    """
    import tensorflow as tf

    gpus = len(tf.config.list_physical_devices("GPU"))
    if device == "auto":
        return "/GPU:0" if gpus else None
    first = "gpu" if device == "gpus" else device.partition(",")[0]
    kind, _, number = first.partition(":")
    if kind == "cpu":
        return f"/CPU:{number or 0}"
    if kind not in ("gpu", "cuda") or not (number or "0").isdigit():
        raise ValueError(f"device is {device!r}, expected auto, cpu, gpu or gpu:N.")
    if int(number or 0) >= gpus:
        raise ValueError(
            f"device is {device!r}, and TensorFlow sees {gpus} GPU(s) on this machine. Choose "
            "device='auto', or run `kytolly doctor` to learn why there is none."
        )
    return f"/GPU:{number or 0}"


def device_names(device: str) -> tuple[str, ...]:
    """TensorFlow's names for the devices that share the work; () where there is one."""
    if "," not in device and device != "gpus":
        return ()
    from kytolly.machine.devices import names_of_several

    return names_of_several(device)


def available_memory_bytes() -> int | None:
    """Memory that this process can still take, cut to a container's limit; None if unknown."""
    meminfo = Path("/proc/meminfo")
    line = re.search(r"MemAvailable:\s*(\d+)", meminfo.read_text()) if meminfo.exists() else None
    if line is None:
        return None
    free = int(line.group(1)) * 1024
    try:
        names = [f"/sys/fs/cgroup/memory.{name}" for name in ("max", "current")]
        limit, used = (int(Path(name).read_text()) for name in names)
        return max(0, min(free, limit - used))
    except (OSError, ValueError):  # no cgroup v2, or the limit is the word "max"
        return free
