"""When to act at random."""

from __future__ import annotations

import tensorflow as tf

from agent.random_stream import uniforms, whole_numbers


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


def epsilon_greedy(q: tf.Tensor, epsilon: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """[E] int32 actions: the best one, or any with probability epsilon.

    Args:
        q: [E, A] action values.
        epsilon: [] probability of an action drawn uniformly from all `A`.
        bits: [E, 2] uint32 draws: whether to explore, and which action.
    """
    random_action = whole_numbers(bits[:, 1], tf.constant(q.shape[-1]))
    best_action = tf.argmax(q, axis=-1, output_type=tf.int32)
    return tf.where(uniforms(bits[:, 0]) < epsilon, random_action, best_action)
