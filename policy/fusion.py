"""What XLA may not fuse."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def computed_once(values: Any, certain: tf.Tensor) -> Any:
    """The same tensors, which a compiled program computes once.

    XLA fuses cheap operations into all that reads them, and then computes a row's number anew for
    each weight that it reaches. What enters a loop is computed before; of this loop, of one turn,
    XLA does not know that. No gradient passes.

    Args:
        values: Tensors in any structure.
        certain: [] bool that is always true, and that XLA cannot know to be.
    """
    once = tf.cast(certain, tf.int32)
    return tf.while_loop(
        lambda turn, _: turn < once,
        lambda turn, _: (turn + 1, values),
        (0, tf.nest.map_structure(tf.zeros_like, values)),
    )[1]
