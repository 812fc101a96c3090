"""From a loss to the gradient that the optimizer gets: one way for all policies."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.policy.weights import concatenate

FEW_PARTS = 6  # gradients of so many weights are summed apart: that fuses with what made them
FEW_NUMBERS = 1_024  # numbers that are summed as they are
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


def gradient(policy: Any, batch: Any) -> tuple[tf.Tensor, Update]:
    """The clipped gradient [W] of a policy's loss, and what the update will report.

    With `gradient_accumulation` K the rows are taken in K parts, one after the other, which needs
    the memory of one part and gives the gradient of all rows together; such a policy has no
    `td_error`. Loss scaling, which float16 needs, is the optimizer's.
    """
    batch = policy.prepare(batch)
    if policy.gradient_accumulation == 1:
        parts, loss = _parts(policy, batch)
        vector = concatenate(parts)
        few = len(parts) <= FEW_PARTS
        norm = tf.sqrt(tf.add_n([squared_norm(part) for part in (parts if few else [vector])]))
    else:
        vector, loss = _accumulate(policy, batch, policy.gradient_accumulation)
        norm = tf.sqrt(squared_norm(vector))
    loss_scale = policy.optimizer.scale_loss(1.0)
    vector *= clip_factor(norm, policy.max_grad_norm * loss_scale)
    metrics = tf.concat([loss.metrics, [norm / loss_scale]], axis=0)
    return vector, Update(loss.loss, loss.td_error, metrics)


def _parts(policy: Any, batch: Any) -> tuple[Any, Loss]:
    """The gradient of each weight."""
    weights = policy.current_weights()
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(weights)
        result = policy.loss(batch, weights)
        scaled = policy.optimizer.scale_loss(result.loss)
    zero = tf.UnconnectedGradients.ZERO
    return tape.gradient(scaled, weights, unconnected_gradients=zero), result


def _accumulate(policy: Any, batch: Any, count: int) -> tuple[tf.Tensor, Loss]:
    def split(column):
        return tf.reshape(column, [count, column.shape[0] // count, *column.shape[1:]])

    columns = tf.nest.map_structure(split, batch)

    def add_part(index, vector, metrics):
        rows = tf.nest.map_structure(lambda column: tf.gather(column, index), columns)
        parts, loss = _parts(policy, rows)
        return index + 1, vector + concatenate(parts), metrics + loss.metrics

    zeros = tf.zeros([policy.weights.size]), tf.zeros([len(policy.metric_names) - 1])
    _, vector, metrics = tf.while_loop(
        lambda index, *_: index < count, add_part, (tf.constant(0), *zeros)
    )
    return vector / count, Loss(metrics[0] / count, (), metrics / count)


def clip_factor(norm: tf.Tensor, max_norm: tf.Tensor | float) -> tf.Tensor:
    """[] what a gradient of that norm is multiplied by, so that its norm is at most `max_norm`.

    Source: Pascanu, Mikolov & Bengio 2013, arXiv:1211.5063, algorithm 1.
    """
    return tf.minimum(1.0, max_norm / tf.maximum(norm, 1e-12))


def squared_norm(tensor: tf.Tensor) -> tf.Tensor:
    """[] sum of squares.

    The rows are summed by a product with ones: XLA on a CPU vectorizes that, and turns a plain
    sum over all elements into a chain of additions (12 microseconds for 120 x 84 instead of 2).
    """
    squares = tf.square(tf.cast(tensor, tf.float32))
    if len(tensor.shape) < 2:
        size = tensor.shape.num_elements()
        if size <= FEW_NUMBERS:
            return tf.reduce_sum(squares)
        rows = tf.reshape(tf.pad(squares, [[0, -size % ROW]]), [-1, ROW])
    else:
        rows = tf.reshape(squares, [-1, tensor.shape[-1]])
    return tf.reduce_sum(tf.matmul(tf.ones([1, rows.shape[0]]), rows))
