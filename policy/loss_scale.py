"""Dynamic loss scaling for networks in float16, within bounds."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

LOSS_SCALES = (2.0**-24, 2.0**40)  # beyond them float32 overflows as well, or nothing is left


class LossScale(keras.optimizers.LossScaleOptimizer):
    """Keras's loss scaling; a loss of 0 never overflows, and would double its scale for ever."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """One step of the optimizer; where the gradients overflow, none."""
        super().apply(grads, trainable_variables)
        self.dynamic_scale.assign(tf.clip_by_value(self.dynamic_scale, *LOSS_SCALES))
