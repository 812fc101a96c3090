"""Which next action a target of Q-learning supposes: the best one, or any by a soft policy."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.policy.hyper import Hyper
from kytolly.policy.projections import soft_policy
from kytolly.policy.returns import double_q_target, q_target, soft_q_target


class BootstrapPolicy(NamedTuple):
    """What is done after a row, as its target supposes."""

    probability: tf.Tensor  # [B, A] of the next actions
    entropy: tf.Tensor | None  # [B] of them, times the temperature; None where there is one action


class Selection(Protocol):
    """The choice of the next action, judged by [B, A] `selection_values`.

    They are values of the target network, or with `double` of the online one.
    """

    @property
    def double(self) -> bool:
        """Whether the online network selects what the target network evaluates."""
        ...

    @property
    def soft(self) -> bool:
        """Whether actions are drawn, and rewards get Munchausen's bonus."""
        ...

    def policy(self, selection_values: tf.Tensor, hyper: Hyper) -> BootstrapPolicy:
        """The probabilities of the next actions."""
        ...

    def target(
        self,
        reward: tf.Tensor,
        discount: tf.Tensor,
        next_q: tf.Tensor,
        selection_values: tf.Tensor,
        hyper: Hyper,
    ) -> tf.Tensor:
        """[B] targets from [B, A] values `next_q` of the target network."""
        ...


@dataclasses.dataclass(frozen=True)
class Greedy:
    """The best action.

    Source: of `double`, van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    double: bool = False
    soft = False

    def policy(self, selection_values: tf.Tensor, hyper: Hyper) -> BootstrapPolicy:
        """All probability on the best action."""
        best = tf.argmax(selection_values, axis=-1)
        return BootstrapPolicy(tf.one_hot(best, selection_values.shape[-1]), None)

    def target(
        self,
        reward: tf.Tensor,
        discount: tf.Tensor,
        next_q: tf.Tensor,
        selection_values: tf.Tensor,
        hyper: Hyper,
    ) -> tf.Tensor:
        """[B] targets of Q-learning, or of Double DQN."""
        if not self.double:
            return q_target(reward, discount, next_q)
        return double_q_target(reward, discount, selection_values, next_q)


@dataclasses.dataclass(frozen=True)
class Soft:
    """Any action by the softmax of its value: Munchausen-DQN.

    With n-step rows the bonus is that of the first action alone, and the values that follow are
    soft.

    Source: Vieillard, Pietquin & Geist 2020, arXiv:2007.14430, equation 1.
    """

    double: bool = False
    soft = True

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


def make_selection(cfg: DQNConfig) -> Selection:
    """What the switches `double` and `munchausen` of a config ask for."""
    return Soft(cfg.double) if cfg.munchausen else Greedy(cfg.double)
