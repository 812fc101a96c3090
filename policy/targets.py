"""Targets of the value estimates: pure functions, one equation each."""

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


def double_q_target(
    reward: tf.Tensor, discount: tf.Tensor, next_q_online: tf.Tensor, next_q_target: tf.Tensor
) -> tf.Tensor:
    """Target whose next action the online network picks and the target network evaluates.

    Args:
        reward: [B] as in `q_target`.
        discount: [B] as in `q_target`.
        next_q_online: [B, A] online network's action values at `next_obs`.
        next_q_target: [B, A] target network's action values at `next_obs`.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461, section "Double DQN".
    """
    best_action = tf.argmax(next_q_online, axis=-1)
    next_value = tf.gather(next_q_target, best_action, batch_dims=1)
    return tf.stop_gradient(reward + discount * next_value)
