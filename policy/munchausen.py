"""Munchausen-DQN: soft targets, and rewards that like what the agent would do."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from kytolly.policy.batch import Transition
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.targets import munchausen_bonus, soft_policy


class Continuation(NamedTuple):
    """How a target goes on: what is done next, and what is added to rewards and values."""

    reward: tf.Tensor  # [B] sum of the n discounted rewards and of the bonus, in reward units
    probability: tf.Tensor  # [B, A] of the next actions
    entropy: tf.Tensor  # [B] of them, times the temperature: added to the next value


class MunchausenPolicy(DQNPolicy):
    """DQN with the Munchausen bonus, where the config's `munchausen` says so.

    With n-step rows the bonus is that of the first action alone, and the values that follow are
    soft. With `double` the online network's values make the probabilities of the next actions.

    Source: Vieillard, Pietquin & Geist 2020, arXiv:2007.14430, equation 1.
    """

    def continuation(
        self, batch: Transition, weights: list[tf.Tensor], next_q: tf.Tensor
    ) -> Continuation:
        """What the targets need beside [B, A] `next_q`, the target network's values."""
        cfg = self.cfg
        picks = self.picks(batch, weights) if self.double else next_q
        if not cfg.munchausen:
            best = tf.one_hot(tf.argmax(picks, axis=-1), picks.shape[-1])
            return Continuation(batch.reward, best, tf.zeros_like(batch.reward))
        scale, lowest = cfg.munchausen_scale, cfg.munchausen_lowest
        q, temperature = self.target_q(batch.obs, batch), cfg.entropy_temperature
        bonus = munchausen_bonus(q, batch.action, temperature, scale, lowest)
        return Continuation(batch.reward + bonus, *soft_policy(picks, temperature))

    def bootstrap(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B] targets: values of the next actions, with their entropy."""
        next_q = self.target_q(batch.next_obs, batch)
        reward, probability, entropy = self.continuation(batch, weights, next_q)
        next_value = tf.reduce_sum(probability * next_q, axis=-1) + entropy
        return tf.stop_gradient(reward + batch.discount * next_value)
