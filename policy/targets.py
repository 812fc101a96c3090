"""Targets of Q-learning beside the plain one: pure functions, one equation each."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from kytolly.policy.fusion import computed_once

PARTS = 3  # of the values whose projections are summed at once


def double_q_target(
    reward: tf.Tensor, discount: tf.Tensor, next_q_online: tf.Tensor, next_q_target: tf.Tensor
) -> tf.Tensor:
    """Target whose next action the online network picks and the target network evaluates.

    Args:
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows, as in `dqn.q_target`.
        next_q_online: [B, A] online network's action values at `next_obs`.
        next_q_target: [B, A] target network's action values at `next_obs`.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: van Hasselt, Guez & Silver 2016, arXiv:1509.06461, section "Double DQN".
    """
    best_action = tf.argmax(next_q_online, axis=-1)
    next_value = tf.gather(next_q_target, best_action, batch_dims=1)
    return tf.stop_gradient(reward + discount * next_value)


def soft_policy(q: tf.Tensor, temperature: float) -> tuple[tf.Tensor, tf.Tensor]:
    """The softmax of action values, and its entropy.

    Args:
        q: [B, A] action values, in reward units.
        temperature: Difference in value that makes an action e times as likely.

    Returns:
        [B, A] probabilities, and [B] their entropy times the temperature, in reward units.

    Source: Vieillard, Pietquin & Geist 2020, arXiv:2007.14430, section 2.
    """
    log_prob = tf.nn.log_softmax(q / temperature)
    probability = tf.exp(log_prob)
    return probability, -temperature * tf.reduce_sum(probability * log_prob, axis=-1)


def munchausen_bonus(
    q: tf.Tensor, action: tf.Tensor, temperature: float, scale: float, lowest: float
) -> tf.Tensor:
    """[B] what a reward gets: a share of the scaled log-probability of the action, at most 0.

    Args:
        q: [B, A] target network's action values at `obs`, in reward units.
        action: [B] int32.
        temperature: That of `soft_policy`.
        scale: The share.
        lowest: Scaled log-probability, in reward units, below which nothing counts.

    Source: Vieillard, Pietquin & Geist 2020, arXiv:2007.14430, equation 1 and, for the clip,
    section 3 (their alpha, tau and l_0).
    """
    log_prob = temperature * tf.nn.log_softmax(q / temperature)
    taken = tf.reduce_sum(log_prob * tf.one_hot(action, q.shape[-1]), axis=-1)
    return scale * tf.clip_by_value(taken, lowest, 0.0)


def categorical_projection(
    value: tf.Tensor, probability: tf.Tensor, atoms: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The distribution on evenly spaced atoms that is nearest to one on other values.

    Each value gives its probability to the two atoms around it, the more to the nearer one; one
    beyond the last atom gives all to that. There are no gathers and no scatters.

    Args:
        value: [B, Z] values, in reward units.
        probability: [B, Z] their probabilities.
        atoms: [Z] evenly spaced values that rise.

    Returns:
        [B, Z] probabilities of the atoms, and [B] the share that came from beyond them.

    Source: Bellemare, Dabney & Munos 2017, arXiv:1707.06887, equation 7.
    """
    # Not the difference of two neighbors, of which rounding leaves little where they are close.
    step = (atoms[-1] - atoms[0]) / (int(atoms.shape[0]) - 1)
    inside = tf.clip_by_value(value, atoms[0], atoms[-1])
    # Summed over the middle axis and in parts: a program then needs no [B, Z, Z] numbers at once.
    sizes = [len(part) for part in np.array_split(np.arange(int(value.shape[1])), PARTS)]
    whole = tf.logical_not(probability[0, 0] < 0.0)  # also where it is not a number
    places = computed_once((inside - atoms[0]) / step, whole)  # not for each atom
    places = tf.split(places, sizes, axis=1)
    place, projected = tf.range(atoms.shape[0], dtype=tf.float32), tf.zeros([])
    for part, weight in zip(places, tf.split(probability, sizes, axis=1), strict=True):
        share = tf.nn.relu(1.0 - tf.abs(part[:, :, tf.newaxis] - place))
        projected += tf.reduce_sum(share * weight[:, :, tf.newaxis], axis=1)
    beyond = tf.cast(tf.abs(value - inside) > 1e-3 * step, tf.float32)
    return projected, tf.reduce_sum(beyond * probability, axis=-1)


def quantile_huber(
    estimate: tf.Tensor, target: tf.Tensor, level: tf.Tensor, delta: float
) -> tf.Tensor:
    """[B] loss that is least where each quantile has its level's share of the samples below it.

    Args:
        estimate: [B, N] quantiles, in reward units.
        target: [B, M] samples, or quantiles of even weight, in reward units.
        level: [B, N], or [N], level in [0, 1] of each quantile.
        delta: Where the loss turns linear, in reward units.

    Returns:
        [B] sums over the quantiles of means over the samples, in reward units.

    Source: Dabney et al. 2018, arXiv:1806.06923, equation 3; arXiv:1710.10044, equation 10, has
    `delta` times as much.
    """
    error = target[:, tf.newaxis] - tf.expand_dims(estimate, -1)  # [B, N, M]
    size = tf.abs(error)
    quadratic = tf.minimum(size, delta)
    huber = 0.5 * quadratic * quadratic + delta * (size - quadratic)
    weight = tf.abs(tf.expand_dims(level, -1) - tf.cast(error < 0.0, tf.float32))
    return tf.reduce_sum(tf.reduce_mean(weight * huber / delta, axis=-1), axis=-1)
