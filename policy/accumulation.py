"""The gradient of many rows in the memory of a few."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kytolly.policy.weights import concatenate


def accumulated_gradient(
    policy: Any, batch: Any, count: int
) -> tuple[list[tf.Tensor], tf.Tensor, Any]:
    """What `policy.part_gradients` gives for all rows together, its gradient as one vector [W].

    The rows are taken in `count` parts, one after the other.

    Args:
        policy: A `policy.base.Policy` whose loss is a mean over rows and its first metric.
        batch: [B, ...] columns; `count` divides `B`.
        count: Parts.

    Returns:
        The gradient, the metrics and, where the policy gives them, [B] `td_error`.
    """
    columns = tf.nest.map_structure(lambda x: tf.reshape(x, [count, -1, *x.shape[1:]]), batch)
    rows = tf.nest.flatten(columns)[0].shape[1] if policy.gives_td_error else 0
    errors = tf.TensorArray(tf.float32, count, element_shape=[rows])

    def add_part(index, vector, sums, errors):
        part = tf.nest.map_structure(lambda column: tf.gather(column, index), columns)
        gradients, loss = policy.part_gradients(part)
        error = loss.td_error if policy.gives_td_error else tf.zeros([0])
        vector += concatenate(gradients)
        return index + 1, vector, sums + loss.metrics, errors.write(index, error)

    metrics = len(policy.metric_names) - 1
    zeros = tf.constant(0), tf.zeros_like(policy.weights.vector), tf.zeros([metrics]), errors
    _, vector, sums, errors = tf.while_loop(lambda index, *_: index < count, add_part, zeros)
    td_error = tf.reshape(errors.stack(), [-1]) if policy.gives_td_error else ()
    return [vector / count], sums / count, td_error
