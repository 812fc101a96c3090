"""The next action that a target of Q-learning supposes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol

import tensorflow as tf

from kytolly.policy.few_columns import row_argmax
from kytolly.policy.hyper import Hyper
from kytolly.policy.value_learning import double_q_target, q_target


class BootstrapPolicy(NamedTuple):
    """The actions after a row, as its target supposes."""

    probability: tf.Tensor  # [B, A] of the next actions
    entropy: tf.Tensor | None  # [B] of them, times the temperature; None where there is one action


class Selection(Protocol):
    """The choice of the next action, judged by [B, A] `selection_values`.

    They are values of the target network, or with `double` of the online one. `Greedy` and
    `policy.munchausen.Soft` are such.
    """

    @property
    def double(self) -> bool:
        """The online network selects what the target network evaluates."""
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

    def bonus(
        self, q: Callable[[], tf.Tensor], action: tf.Tensor, hyper: Hyper
    ) -> tf.Tensor | None:
        """[B] what is added to the rewards of actions [B], or None for nothing.

        `q` gives the [B, A] values of the target network at `obs`, where they are needed.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Greedy:
    """The best action.

    Source: of `double`, van Hasselt, Guez & Silver 2016, arXiv:1509.06461.
    """

    double: bool = False

    def policy(self, selection_values: tf.Tensor, hyper: Hyper) -> BootstrapPolicy:
        """All probability on the best action."""
        best = row_argmax(selection_values)
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

    def bonus(self, q: Callable[[], tf.Tensor], action: tf.Tensor, hyper: Hyper) -> None:
        """None: the rewards are the environment's."""
