"""Munchausen-DQN: a soft policy in the target, and a bonus for likely actions in the reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from kytolly.policy.action_values import take_action
from kytolly.policy.hyper import Hyper, Number
from kytolly.policy.selection import BootstrapPolicy


@dataclasses.dataclass(frozen=True)
class Soft:
    """Any action by the softmax of its value: Munchausen-DQN.

    With n-step rows the bonus is that of the first action alone, and the values that follow are
    soft.

    Source: Vieillard, Pietquin & Geist 2020, arXiv:2007.14430, equation 1.
    """

    double: bool = False

    def policy(self, selection_values: tf.Tensor, hyper: Hyper) -> BootstrapPolicy:
        """The softmax at the temperature `hyper.entropy_temperature`."""
        return BootstrapPolicy(*soft_policy(selection_values, hyper.entropy_temperature))

    def target(
        self,
        reward: tf.Tensor,
        discount: tf.Tensor,
        next_q: tf.Tensor,
        selection_values: tf.Tensor,
        hyper: Hyper,
    ) -> tf.Tensor:
        """[B] soft targets."""
        probability, entropy = soft_policy(selection_values, hyper.entropy_temperature)
        return soft_q_target(reward, discount, probability, next_q, entropy)

    def bonus(self, q: Callable[[], tf.Tensor], action: tf.Tensor, hyper: Hyper) -> tf.Tensor:
        """[B] bonus of likely actions."""
        return munchausen_bonus(
            q(),
            action,
            hyper.entropy_temperature,
            hyper.munchausen_scale,
            hyper.munchausen_lowest,
        )


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


def soft_q_target(
    reward: tf.Tensor,
    discount: tf.Tensor,
    probability: tf.Tensor,
    next_q: tf.Tensor,
    entropy: tf.Tensor,
) -> tf.Tensor:
    """Target that evaluates the next state by the mean over its actions, and their entropy.

    Args:
        reward: [B] sum of the n discounted rewards, in reward units; Munchausen's bonus among them.
        discount: [B] weight of what follows, as in `q_target`.
        probability: [B, A] of the next actions.
        next_q: [B, A] target network's action values at `next_obs`.
        entropy: [B] of the next actions, times the temperature, in reward units.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: Vieillard, Pietquin & Geist 2020, arXiv:2007.14430, equation 1.
    """
    next_value = tf.reduce_sum(probability * next_q, axis=-1) + entropy
    return tf.stop_gradient(reward + discount * next_value)
