"""Soft policies, and projections of distributions: pure functions, one equation each."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from kytolly.environment.fusion_barrier import loop_fusion_barrier
from kytolly.policy.action_values import take_action
from kytolly.policy.hyper import Number

PARTS = 3  # of the values whose projections are summed at once


def soft_policy(q: tf.Tensor, temperature: Number) -> tuple[tf.Tensor, tf.Tensor]:
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
    q: tf.Tensor, action: tf.Tensor, temperature: Number, scale: Number, lowest: Number
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
    taken = take_action(log_prob, action)
    return scale * tf.clip_by_value(taken, lowest, 0.0)


def categorical_projection(
    value: tf.Tensor, probability: tf.Tensor, atoms: tf.Tensor, always: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The distribution on evenly spaced atoms that is nearest to one on other values.

    Each value gives its probability to the two atoms around it, the more to the nearer one; one
    beyond the last atom gives all to that. There are no gathers and no scatters.

    Args:
        value: [B, Z] values, in reward units.
        probability: [B, Z] their probabilities.
        atoms: [Z] evenly spaced values that rise.
        always: [] bool that is true, and that XLA cannot know to be: see `loop_fusion_barrier`.
            Where this is mapped over agents it depends on none of them.

    Returns:
        [B, Z] probabilities of the atoms, and [B] the share that came from beyond them.

    Source: Bellemare, Dabney & Munos 2017, arXiv:1707.06887, equation 7.
    """
    # Not the difference of two neighbors, of which rounding leaves little where they are close.
    step = (atoms[-1] - atoms[0]) / (int(atoms.shape[0]) - 1)
    inside = tf.clip_by_value(value, atoms[0], atoms[-1])
    # Summed over the middle axis and in parts: a program then needs no [B, Z, Z] numbers at once.
    sizes = [len(part) for part in np.array_split(np.arange(int(value.shape[1])), PARTS)]
    places = loop_fusion_barrier((inside - atoms[0]) / step, always)  # not for each atom
    places = tf.split(places, sizes, axis=1)
    place, projected = tf.range(atoms.shape[0], dtype=tf.float32), tf.zeros([])
    for part, weight in zip(places, tf.split(probability, sizes, axis=1), strict=True):
        share = tf.nn.relu(1.0 - tf.abs(part[:, :, tf.newaxis] - place))
        projected += tf.reduce_sum(share * weight[:, :, tf.newaxis], axis=1)
    beyond = tf.cast(tf.abs(value - inside) > 1e-3 * step, tf.float32)
    return projected, tf.reduce_sum(beyond * probability, axis=-1)
