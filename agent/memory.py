"""Refuses what would exhaust the memory before anything of it is allocated."""

from __future__ import annotations

import itertools
import math
from typing import Any

import tensorflow as tf


def require_memory(cfg: Any, seen: Any, num_params: int, available_bytes: int | None) -> None:
    """Refuse a configuration whose network or rows do not fit; Linux would end the process.

    What is computed is a lower bound. `seen` is the spec, or specs, that the network sees, and
    `num_params` how many numbers it returns. Where nobody knows what is free, all passes.
    """
    specs = tf.nest.flatten(seen)
    flat = sum(math.prod(spec.shape) for spec in specs if len(spec.shape) < 3)  # others: to a CNN
    widths = [flat, *getattr(cfg, "hidden_units", ()), num_params]
    row = sum(math.prod(spec.shape) * spec.dtype.size for spec in specs)
    learned, acted = cfg.rows_per_update, cfg.num_envs
    parts = {  # weights, gradient and two moments; activations; observations and the next ones
        "hidden_units": 16 * sum(a * b for a, b in itertools.pairwise(widths)),
        "the rows of an update": learned * (2 * row + 4 * sum(widths)),
        "num_envs": acted * (2 * row + 4 * max(widths)),
        "the rows of an iteration": 2 * cfg.env_steps_per_iteration * row,
    }
    if available_bytes is not None and sum(parts.values()) > available_bytes:
        largest = max(parts, key=lambda name: parts[name])
        raise ValueError(
            f"training needs at least {sum(parts.values()) / 2**30:,.1f} GiB of memory and "
            f"{available_bytes / 2**30:,.1f} GiB are free: most of it, "
            f"{parts[largest] / 2**30:,.1f} GiB, is for {largest}. Lower that."
        )
