"""The formulas of Q-learning: pure functions, one equation each."""

from __future__ import annotations

import tensorflow as tf


def q_target(reward: tf.Tensor, discount: tf.Tensor, next_q: tf.Tensor) -> tf.Tensor:
    """Target that evaluates the next state at its best action.

    Args:
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows: gamma**n, or 0 where the episode
            terminated. A time limit is not a termination.
        next_q: [B, A] target network's action values at `next_obs`.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", eq. 1.
    """
    return tf.stop_gradient(reward + discount * tf.reduce_max(next_q, axis=-1))


def weighted_huber(td_error: tf.Tensor, weight: tf.Tensor | float, delta: float) -> tf.Tensor:
    """[] mean over rows of weight times Huber loss, in squared reward units.

    Quadratic up to `delta`, linear beyond: one surprising row moves the weights by a bounded
    amount.

    Args:
        td_error: [B] target minus estimate, in reward units.
        weight: [B] importance weight; 1 for uniform replay.
        delta: Where the loss turns linear, in reward units.

    Source: Huber 1964, "Robust Estimation of a Location Parameter"; Mnih et al. 2015 clip the
    error term to [-1, 1], which is this loss with delta = 1.
    """
    size = tf.abs(td_error)
    quadratic = tf.minimum(size, delta)
    return tf.reduce_mean(weight * (0.5 * quadratic * quadratic + delta * (size - quadratic)))
