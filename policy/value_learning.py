"""The formulas of Q-learning: targets, n-step returns, and the loss of an error."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy.few_columns import row_argmax, row_max
from kytolly.policy.hyper import Number

LARGE = 5.0  # rewards, in units of the size of returns


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
    return tf.stop_gradient(reward + discount * row_max(next_q))


def double_q_target(
    reward: tf.Tensor, discount: tf.Tensor, next_q_online: tf.Tensor, next_q_target: tf.Tensor
) -> tf.Tensor:
    """Target whose next action the online network picks and the target network evaluates.

    Args:
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows, as in `q_target`.
        next_q_online: [B, A] online network's action values at `next_obs`.
        next_q_target: [B, A] target network's action values at `next_obs`.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461, section "Double DQN".
    """
    best_action = row_argmax(next_q_online)
    next_value = tf.gather(next_q_target, best_action, batch_dims=1)
    return tf.stop_gradient(reward + discount * next_value)


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


def huber_delta(given: Number | None, reward: tf.Tensor) -> Number:
    """[B] error of each row above which its loss is linear: 1, or what a large reward needs.

    A reward far above what returns usually are is rare, and no outlier: with an outlier's loss, a
    penalty of one step in a thousand moves values as little as noise does.

    Args:
        given: What the config has for all rows, if anything.
        reward: [B] sums of the n discounted rewards, in units of the size of returns.
    """
    size = tf.abs(reward)
    return tf.where(size > LARGE, size, 1.0) if given is None else given


def huber(error: tf.Tensor, delta: Number) -> tf.Tensor:
    """Huber loss of each error, in squared units of the errors, of any shape.

    Quadratic up to `delta`, linear beyond: one surprising row moves the weights by a bounded
    amount.

    Args:
        error: Target minus estimate, in reward units.
        delta: Where the loss turns linear, in reward units; or one for each error.

    Source: Huber 1964, "Robust Estimation of a Location Parameter"; Mnih et al. 2015 clip the
    error term to [-1, 1], which is this loss with delta = 1.
    """
    size = tf.abs(error)
    quadratic = tf.minimum(size, delta)
    return 0.5 * quadratic * quadratic + delta * (size - quadratic)
