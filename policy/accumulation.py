"""An update's gradient from a few rows at a time, which needs the memory of those."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from kytolly.policy.batch import map_columns
from kytolly.policy.hyper import Hyper
from kytolly.policy.weights import FlatWeights


class MicrobatchLoss(Protocol):
    """What a `policy.base.Loss` has."""

    @property
    def td_error(self) -> tf.Tensor | None:
        """[B] of each row."""
        ...

    @property
    def metrics(self) -> tf.Tensor:
        """[F] of all rows."""
        ...


class Learning(Protocol):
    """What a `policy.base.Policy` has."""

    weights: FlatWeights
    metric_names: tuple[str, ...]
    gives_td_error: bool

    def microbatch_gradients(
        self, batch: Any, hyper: Hyper
    ) -> tuple[list[tf.Tensor], MicrobatchLoss]:
        """The gradient of each weight, and the loss."""
        ...


def accumulated_gradients(
    policy: Learning, batch: Any, hyper: Hyper, count: int
) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor]:
    """The gradient [W] of all rows together, their errors [B] if any, and the mean metrics [F].

    Each of `count` microbatches has as many rows; the loss is a mean over rows.
    """
    columns = map_columns(lambda x: tf.reshape(x, [count, -1, *x.shape[1:]]), batch)
    rows = tf.nest.flatten(columns)[0].shape[1] if policy.gives_td_error else 1
    errors = tf.zeros([count, rows])

    def add_microbatch(
        index: tf.Tensor, vector: tf.Tensor, sums: tf.Tensor, errors: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        part = map_columns(lambda column: tf.gather(column, index), columns)
        gradients, loss = policy.microbatch_gradients(part, hyper)
        error = tf.zeros([1]) if loss.td_error is None else loss.td_error
        vector += policy.weights.join(gradients)
        errors = tf.tensor_scatter_nd_update(errors, [[index]], tf.expand_dims(error, 0))
        return index + 1, vector, sums + loss.metrics, errors

    metrics = len(policy.metric_names) - 1
    zeros = tf.constant(0), tf.zeros_like(policy.weights.vector), tf.zeros([metrics]), errors
    _, vector, sums, errors = tf.while_loop(lambda index, *_: index < count, add_microbatch, zeros)
    td_error = tf.reshape(errors, [-1]) if policy.gives_td_error else None
    return vector / count, td_error, sums / count
