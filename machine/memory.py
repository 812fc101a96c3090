"""Refuses what would exhaust the memory before anything of it is allocated.

Linux would end the process. Nothing here imports TensorFlow: searching texts does without it.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.machine import facts

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from kytolly.config.run import RunConfig

SMALL_BYTES = 2**24  # whoever runs Python has so much; to look takes longer than a search
ROW_BYTES = 13  # of a transition beside its observations: action, reward, discount, end
PRIORITY_BYTES = 5  # of a row and its share of the sums, where rows have priorities


class NotEnoughMemory(ValueError):
    """Something would take more memory than is free; the message is one line."""


def memory_use(device: str) -> dict[str, float]:
    """Memory in MiB, now and at most so far, by the name of a metric.

    That of this process is main memory; a GPU's is what TensorFlow has allocated there.
    """
    megabytes = {}
    status = Path("/proc/self/status")
    text = status.read_text() if status.exists() else ""
    for name, key in (("process_memory_mb", "VmRSS"), ("process_memory_peak_mb", "VmHWM")):
        if match := re.search(rf"^{key}:\s*(\d+) kB", text, re.M):
            megabytes[name] = int(match.group(1)) / 2**10
    if "GPU" in device:
        import tensorflow as tf

        used = tf.config.experimental.get_memory_info(device.rpartition("device:")[2].strip("/"))
        megabytes["device_memory_mb"] = used["current"] / 2**20
        megabytes["device_memory_peak_mb"] = used["peak"] / 2**20
    return megabytes


def available_bytes(device: str | None) -> int | None:
    """Memory that may be taken on a device; None where nobody knows."""
    return None if device and "GPU" in device else facts.available_memory_bytes()


def check_memory(needed: int, what: str, advice: str, device: str | None = None) -> None:
    """Refuse what would take more memory than is free.

    Args:
        needed: Bytes, at least.
        what: What takes them.
        advice: What to do.
        device: Where; None for the machine's own memory.
    """
    free = available_bytes(device) if needed > SMALL_BYTES else None
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"{what} would take at least {needed / 2**30:,.1f} GiB of memory, and "
            f"{free / 2**30:,.1f} GiB are free: {advice}."
        )


def training_bytes(
    cfg: RunConfig,
    obs_spec: tf.TensorSpec | dict[str, tf.TensorSpec],
    num_params: int,
    model: keras.Model | None = None,
    frame_stack: int = 0,
) -> dict[str, int]:
    """Bytes that a configuration takes at least, by what takes them.

    Args:
        cfg: Configuration.
        obs_spec: The spec, or a dict of them, of the observations that the network gets.
        num_params: How many numbers the network returns.
        model: The user's network, of whose size nothing is known; None for ours.
        frame_stack: Frames of an observation, which a replay memory holds once each; 0: no stack.
    """
    specs = list(obs_spec.values()) if isinstance(obs_spec, dict) else [obs_spec]
    flat = sum(
        (spec.shape.num_elements() or 0) for spec in specs if len(spec.shape) < 3
    )  # others: to a CNN
    outputs = num_params * getattr(cfg, "outputs_per_action", 1)
    widths = [flat, *getattr(cfg, "hidden_units", ()), outputs] if model is None else [0]
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    weights *= 2 if getattr(cfg, "noisy", False) else 1  # a deviation beside each
    obs_bytes = sum((spec.shape.num_elements() or 0) * spec.dtype.size for spec in specs)
    rows = cfg.rows_per_update
    rows_at_once = rows // cfg.gradient_accumulation
    replay_row = 2 * obs_bytes
    if frame_stack:  # one frame in the stack's place, those that begin episodes, and their numbers
        replay_row = obs_bytes // frame_stack * 17 // 16 + 4 * (frame_stack + 1)
    replay_row += ROW_BYTES + (PRIORITY_BYTES if getattr(cfg, "prioritized", False) else 0)
    return {  # weights, gradient and two moments; activations; observations and the next ones
        "hidden_units": 16 * weights,
        "the rows of an update": rows * 2 * obs_bytes + rows_at_once * 4 * sum(widths),
        "num_envs": cfg.num_envs * (2 * obs_bytes + 4 * max(widths)),
        "the rows of an iteration": 2 * cfg.env_steps_per_iteration * obs_bytes,
        "replay_capacity": getattr(cfg, "replay_capacity", 0) * replay_row,
    }


def require_memory(
    cfg: RunConfig,
    obs_spec: tf.TensorSpec | dict[str, tf.TensorSpec],
    num_params: int,
    model: keras.Model | None,
    device: str | None,
    frame_stack: int = 0,
) -> None:
    """Refuse a configuration whose network or rows do not fit on the device that trains.

    The other arguments are those of `training_bytes`.
    """
    parts = training_bytes(cfg, obs_spec, num_params, model, frame_stack)
    needed = sum(parts.values())
    largest = max(parts, key=lambda name: parts[name])
    advice = f"most of it, {parts[largest] / 2**30:,.1f} GiB, is for {largest}. Lower that"
    if largest == "replay_capacity":
        row = parts[largest] // getattr(cfg, largest)
        rest = (available_bytes(device) or 0) - needed + parts[largest]
        advice += f"; {max(0, rest) // row:,} rows would fit"
    check_memory(needed, "training", advice, device)


def require_population_memory(needed: int, members: int, device: str | None) -> None:
    """Refuse a population that does not fit on the device that trains.

    Args:
        needed: Bytes that one member takes at least.
        members: How many there are.
        device: As for `check_memory`.
    """
    free = available_bytes(device)
    fit = max(0, free or 0) // max(1, needed)
    what = f"a population of {members:,} members"
    check_memory(needed * members, what, f"{fit:,} members would fit. Train fewer", device)
