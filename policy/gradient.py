"""From a loss to the gradient that the optimizer gets: one way for all policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

if TYPE_CHECKING:
    from kytolly.policy.base import Policy

FEW = 1_024  # numbers that are summed as they are
ROW = 64  # numbers of a row that a long vector is broken into


class Loss(NamedTuple):
    """What a policy's loss returns for a batch.

    Attributes:
        loss: [] to be minimized.
        td_error: [B] target minus estimate, in reward units; () where there is none.
        metrics: [F - 1] the policy's `metric_names` without the last, which is the gradient's norm.
    """

    loss: Any
    td_error: Any
    metrics: Any


class Update(NamedTuple):
    """What one update leaves.

    Attributes:
        loss: [] loss before the update.
        td_error: [B] as in `Loss`.
        metrics: [F] the policy's `metric_names`.
    """

    loss: Any
    td_error: Any
    metrics: Any


def gradient(policy: Policy, batch: Any) -> tuple[tf.Tensor, Update]:
    """The clipped gradient [W] of a policy's loss, and what the update will report.

    With `gradient_accumulation` K the rows are taken in K parts, one after the other, which needs
    the memory of one part and gives the gradient of all rows together; such a policy has no
    `td_error`. Loss scaling, which float16 needs, is the optimizer's.
    """
    parts = policy.gradient_accumulation
    if parts == 1:
        vector, loss = _part(policy, batch)
    else:
        vector, loss = _accumulate(policy, batch, parts)
    loss_scale = policy.optimizer.scale_loss(1.0)
    vector, norm = clip_by_global_norm(vector, policy.max_grad_norm * loss_scale)
    metrics = tf.concat([loss.metrics, [norm / loss_scale]], axis=0)
    return vector, Update(loss.loss, loss.td_error, metrics)


def _part(policy: Policy, batch: Any) -> tuple[tf.Tensor, Loss]:
    weights = policy.weights.vector
    with tf.GradientTape() as tape:
        result = policy.loss(batch)
        scaled = policy.optimizer.scale_loss(result.loss)
    return tape.gradient(scaled, weights), result


def _accumulate(policy: Policy, batch: Any, parts: int) -> tuple[tf.Tensor, Loss]:
    def split(column):
        return tf.reshape(column, [parts, column.shape[0] // parts, *column.shape[1:]])

    columns = tf.nest.map_structure(split, batch)

    def add_part(index, *sums):
        rows = tf.nest.map_structure(lambda column: tf.gather(column, index), columns)
        vector, loss = _part(policy, rows)
        return index + 1, sums[0] + vector, sums[1] + loss.metrics

    begin = (tf.constant(0), tf.zeros([policy.weights.size]))
    begin = (*begin, tf.zeros([len(policy.metric_names) - 1]))
    _, vector, metrics = tf.while_loop(lambda index, *_: index < parts, add_part, begin)
    return vector / parts, Loss(metrics[0] / parts, (), metrics / parts)


def clip_by_global_norm(
    vector: tf.Tensor, max_norm: tf.Tensor | float
) -> tuple[tf.Tensor, tf.Tensor]:
    """A gradient [W] scaled down so that its norm is at most `max_norm`, and [] its norm before.

    Source: Pascanu, Mikolov & Bengio 2013, arXiv:1211.5063, algorithm 1.
    """
    norm = tf.sqrt(squared_norm(vector))
    scale = tf.minimum(1.0, max_norm / tf.maximum(norm, 1e-12))
    return vector * tf.cast(scale, vector.dtype), norm


def squared_norm(vector: tf.Tensor) -> tf.Tensor:
    """[] sum of the squares of [W].

    The rows are summed by a product with ones: XLA on a CPU vectorizes that, and turns a plain
    sum over all elements into a chain of additions (12 microseconds for 10,080 instead of 2).
    """
    squares = tf.square(vector)
    size = vector.shape.num_elements()
    if size <= FEW:
        return tf.reduce_sum(squares)
    rows = tf.reshape(tf.pad(squares, [[0, -size % ROW]]), [-1, ROW])
    return tf.reduce_sum(tf.matmul(tf.ones([1, rows.shape[0]], rows.dtype), rows))
