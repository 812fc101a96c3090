"""The gradient of many rows in the memory of a few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kytolly.policy.base import Loss
from kytolly.policy.weights import concatenate


def accumulated_gradient(
    weight_gradients: Callable[[Any], tuple[Any, Loss]],
    batch: Any,
    count: int,
    weights: int,
    metrics: int,
) -> tuple[list[tf.Tensor], Loss]:
    """What `weight_gradients` gives for all rows together, its gradient as one vector [W].

    The rows are taken in `count` parts, one after the other; there is no `td_error`.

    Args:
        weight_gradients: `Policy.weight_gradients`, whose loss is a mean over rows.
        batch: [B, ...] columns; `count` divides `B`.
        count: Parts.
        weights: `W`.
        metrics: How many metrics the loss has.
    """
    columns = tf.nest.map_structure(lambda x: tf.reshape(x, [count, -1, *x.shape[1:]]), batch)

    def add_part(index, vector, sums):
        rows = tf.nest.map_structure(lambda column: tf.gather(column, index), columns)
        parts, loss = weight_gradients(rows)
        return index + 1, vector + concatenate(parts), sums + loss.metrics

    zeros = tf.constant(0), tf.zeros([weights]), tf.zeros([metrics])
    _, vector, sums = tf.while_loop(lambda index, *_: index < count, add_part, zeros)
    return [vector / count], Loss(sums[0] / count, (), sums / count)
