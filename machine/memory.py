"""Refuses what would exhaust the memory before anything of it is allocated.

Linux would end the process. Nothing here imports TensorFlow: searching texts does without it.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

from kytolly.machine import facts

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
    cfg: Any, seen: Any, num_params: int, model: Any = None, frame_stack: int = 0
) -> dict[str, int]:
    """Bytes that a configuration takes at least, by what takes them.

    Args:
        cfg: Configuration.
        seen: The spec, or a dict of them, that the network sees.
        num_params: How many numbers the network returns.
        model: The user's network, of whose size nothing is known; None for ours.
        frame_stack: Frames of an observation, which a replay memory keeps once each; 0: no stack.
    """
    specs = list(seen.values()) if isinstance(seen, dict) else [seen]
    flat = sum(math.prod(spec.shape) for spec in specs if len(spec.shape) < 3)  # others: to a CNN
    outputs = num_params * getattr(cfg, "outputs_per_action", 1)
    widths = [flat, *getattr(cfg, "hidden_units", ()), outputs] if model is None else [0]
    row = sum(math.prod(spec.shape) * spec.dtype.size for spec in specs)
    learned = cfg.rows_per_update
    acted = cfg.num_envs
    kept = 2 * row
    if frame_stack:  # one frame in the stack's place, those that begin episodes, and their numbers
        kept = row // frame_stack * 17 // 16 + 4 * (frame_stack + 1)
    at_once = learned // cfg.gradient_accumulation
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    weights *= 2 if getattr(cfg, "noisy", False) else 1  # a deviation beside each
    kept += ROW_BYTES + (PRIORITY_BYTES if getattr(cfg, "prioritized", False) else 0)
    return {  # weights, gradient and two moments; activations; observations and the next ones
        "hidden_units": 16 * weights,
        "the rows of an update": learned * 2 * row + at_once * 4 * sum(widths),
        "num_envs": acted * (2 * row + 4 * max(widths)),
        "the rows of an iteration": 2 * cfg.env_steps_per_iteration * row,
        "replay_capacity": getattr(cfg, "replay_capacity", 0) * kept,
    }


def require_memory(
    cfg: Any, seen: Any, num_params: int, model: Any, device: str | None, frame_stack: int = 0
) -> None:
    """Refuse a configuration whose network or rows do not fit on the device that trains.

    The other arguments are those of `training_bytes`.
    """
    parts = training_bytes(cfg, seen, num_params, model, frame_stack)
    needed = sum(parts.values())
    largest = max(parts, key=lambda name: parts[name])
    advice = f"most of it, {parts[largest] / 2**30:,.1f} GiB, is for {largest}. Lower that"
    if largest == "replay_capacity":
        row = parts[largest] // cfg.replay_capacity
        rest = (available_bytes(device) or 0) - needed + parts[largest]
        advice += f"; {max(0, rest) // row:,} rows would fit"
    check_memory(needed, "training", advice, device)
