"""The learning rate of a run: a warm-up, then a decay."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf


def scheduled_rate(
    update: Any, peak: float, total: int, warmup: int, schedule: str = "linear"
) -> tf.Tensor:
    """[] learning rate of an update: it rises linearly to `peak`, then falls to 0, or stays.

    Args:
        update: [] updates made before; the first one has peak / warmup, the last one of the
            warm-up has `peak`. From `total` on the rate is 0.
        peak: Largest rate.
        total: Updates of the run.
        warmup: Updates of the warm-up, fewer than `total`; 0 for none.
        schedule: "linear", "cosine" or "constant".

    Source: Goyal et al. 2017, arXiv:1706.02677 (warm-up); Loshchilov & Hutter 2017,
    arXiv:1608.03983, eq. 5 (cosine).
    """
    done = tf.cast(update, tf.float32)
    rising = (done + 1.0) / max(warmup, 1)
    share = tf.clip_by_value((done - warmup) / max(total - warmup, 1), 0.0, 1.0)
    if schedule == "constant":
        falling = tf.ones_like(share)
    elif schedule == "cosine":
        falling = 0.5 * (1.0 + tf.cos(math.pi * share))
    else:
        falling = 1.0 - share
    return peak * tf.where(done < warmup, rising, falling)


@keras.saving.register_keras_serializable(package="kytolly")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """`scheduled_rate` as a Keras schedule, which an optimizer asks with its own counter."""

    def __init__(self, peak: float, total: int, warmup: int, schedule: str):
        super().__init__()
        self.peak, self.total, self.warmup, self.schedule = peak, total, warmup, schedule

    def __call__(self, step: Any) -> tf.Tensor:
        """[] rate of the update after `step` others."""
        return scheduled_rate(step, self.peak, self.total, self.warmup, self.schedule)

    def get_config(self) -> dict[str, Any]:
        """What `__init__` takes."""
        names = ("peak", "total", "warmup", "schedule")
        return {name: getattr(self, name) for name in names}
