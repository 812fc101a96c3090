"""Returns of several steps."""

from __future__ import annotations

import tensorflow as tf


def n_step_return(
    reward: tf.Tensor, discount: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sum the rewards of a window up to the end of its first episode.

    Args:
        reward: [B, n] rewards of consecutive env steps.
        discount: [B, n] gamma, or 0 where the episode terminated at that step.
        last: [B, n] bool, the episode ended at that step, for either reason.

    Returns:
        [B] discounted sum of the rewards, [B] discount of what follows (the product of the
        discounts used), [B] int32 index in the window of the last step used.

    Source: Sutton & Barto 2018, "Reinforcement Learning", equation 7.1.
    """
    total, weight = reward[:, 0], discount[:, 0]
    alive, used = tf.logical_not(last[:, 0]), tf.zeros_like(reward[:, 0], tf.int32)
    for step in range(1, reward.shape[1]):
        total = tf.where(alive, total + weight * reward[:, step], total)
        weight = tf.where(alive, weight * discount[:, step], weight)
        used = tf.where(alive, step, used)
        alive = tf.logical_and(alive, tf.logical_not(last[:, step]))
    return total, weight, used
