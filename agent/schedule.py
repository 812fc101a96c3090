"""Numbers that change with the progress of a run."""

from __future__ import annotations

import tensorflow as tf


def linear_schedule(start: float, final: float, steps: int, done: tf.Tensor) -> tf.Tensor:
    """[] value that falls linearly from `start` to `final` over `steps` and stays there.

    Args:
        start: Value at 0.
        final: Value at `steps`.
        steps: Length of the fall, in the unit of `done`.
        done: [] number of steps done; negative counts as 0.
    """
    share = tf.clip_by_value(tf.cast(done, tf.float32) / steps, 0.0, 1.0)
    return start + share * (final - start)
