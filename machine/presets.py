"""The preset that fits this machine: what each needs against what is free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.config.presets import PRESETS, preset
from kytolly.machine import facts
from kytolly.machine.gpu import Gpu
from kytolly.machine.memory import training_bytes

FREE_SHARE = 0.5  # of the free memory that a preset may take: programs need room beside their data


class Recommendation(NamedTuple):
    """A preset, and why."""

    name: str
    reason: str


def recommend(needs: Mapping[str, int], device: str | None) -> Recommendation:
    """The largest preset that takes at most half of the free memory; `optimal` if that is unknown.

    Args:
        needs: Bytes that each preset takes.
        device: Where training runs; None for the CPU.
    """
    free = free_bytes(device)
    if free is None:
        return Recommendation("optimal", "the free memory is unknown")
    fitting = [name for name in PRESETS if needs[name] <= FREE_SHARE * free]
    name = fitting[-1] if fitting else "safe"
    least = " even that is more than half of it" if not fitting else ""
    sizes = ", ".join(f"{each} {size_text(needs[each])}" for each in PRESETS)
    return Recommendation(name, f"{size_text(free)} are free; {sizes}{least}")


def free_bytes(device: str | None) -> int | None:
    """Free memory of a GPU, such as "/GPU:0", or else of the machine; None where nobody knows.

    `memory.available_bytes` asks no GPU: TensorFlow may hold all of it, and have room inside.
    """
    if device is None or "GPU" not in device:
        return facts.available_memory_bytes()
    try:
        gpu = Gpu.of(device)
        return None if gpu is None else int(gpu.memory().free)
    except Exception:  # the driver has gone
        return None


def pixel_needs(algorithm: str) -> dict[str, int]:
    """Bytes that each preset of an algorithm takes on images of 84 x 84 x 4 bytes."""
    import tensorflow as tf

    config = PPOConfig if algorithm == "ppo" else DQNConfig
    image = tf.TensorSpec([84, 84, 4], tf.uint8)
    return {
        name: sum(training_bytes(config(**preset(name, algorithm)), image, 18).values())
        for name in PRESETS
    }


def size_text(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
