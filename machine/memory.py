"""Refuses what would exhaust the memory before anything of it is allocated.

Linux would end the process. Nothing here imports TensorFlow: searching texts does without it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from kytolly.machine import facts

SMALL_BYTES = 2**24  # whoever runs Python has so much; to look takes longer than a search
ROW_BYTES = 13  # of a transition beside its observations: action, reward, discount, end


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
        raise ValueError(
            f"{what} would take at least {needed / 2**30:,.1f} GiB of memory, and "
            f"{free / 2**30:,.1f} GiB are free: {advice}."
        )


def require_memory(cfg: Any, seen: Any, num_params: int, model: Any, device: str | None) -> None:
    """Refuse a configuration whose network or rows do not fit.

    Args:
        cfg: Configuration.
        seen: The spec, or a dict of them, that the network sees.
        num_params: How many numbers the network returns.
        model: The user's network, of whose size nothing is known; None for ours.
        device: Where training runs.
    """
    specs = list(seen.values()) if isinstance(seen, dict) else [seen]
    flat = sum(math.prod(spec.shape) for spec in specs if len(spec.shape) < 3)  # others: to a CNN
    widths = [flat, *getattr(cfg, "hidden_units", ()), num_params] if model is None else [0]
    row = sum(math.prod(spec.shape) * spec.dtype.size for spec in specs)
    learned, acted = cfg.rows_per_update, cfg.num_envs
    parts = {  # weights, gradient and two moments; activations; observations and the next ones
        "hidden_units": 16 * sum(a * b for a, b in itertools.pairwise(widths)),
        "the rows of an update": learned * (2 * row + 4 * sum(widths)),
        "num_envs": acted * (2 * row + 4 * max(widths)),
        "the rows of an iteration": 2 * cfg.env_steps_per_iteration * row,
        "replay_capacity": getattr(cfg, "replay_capacity", 0) * (2 * row + ROW_BYTES),
    }
    needed, largest = sum(parts.values()), max(parts, key=lambda name: parts[name])
    advice = f"most of it, {parts[largest] / 2**30:,.1f} GiB, is for {largest}. Lower that"
    if largest == "replay_capacity":
        rest = (available_bytes(device) or 0) - needed + parts[largest]
        advice += f"; {max(0, rest) // (2 * row + ROW_BYTES):,} rows would fit"
    check_memory(needed, "training", advice, device)
