"""The outputs that Q-learning learns for each action: a value, or a distribution of the return.

A head says what a network gives for each action, which targets belong to it, and its loss. Each
works with every `policy.selection`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.policy.batch import Obs
from kytolly.policy.hyper import Hyper
from kytolly.policy.selection import Selection
from kytolly.policy.value_learning import huber

Levels = tf.Tensor | None  # [N], in [0, 1], of the quantiles that a head learns


class Network(Protocol):
    """A network with weights: action values [B, A], or what one of its methods gives."""

    def __call__(self, obs: Obs, method: str = "", **options: bool | tf.Tensor) -> tf.Tensor:
        """The result of the network's `method` for [B, *obs]; "" for a call."""
        ...


class Next(NamedTuple):
    """The future of each row, as the target network sees it."""

    reward: tf.Tensor  # [B] sum of the n discounted rewards, and Munchausen's bonus if any
    discount: tf.Tensor  # [B] weight of what follows
    outputs: tf.Tensor  # what `Head.outputs` gives at `next_obs`
    q: tf.Tensor  # [B, A] action values there
    selection_values: tf.Tensor  # [B, A] by which the next action is selected
    always: tf.Tensor  # [] bool that is true, for `loop_fusion_barrier`


class RowLoss(NamedTuple):
    """The loss of each row, and what is reported of it."""

    loss: tf.Tensor  # [B]
    target: tf.Tensor  # [B] mean of the target, in reward units
    estimate: tf.Tensor  # [B] mean of the estimate, in reward units
    priority: tf.Tensor | None = None  # [B] its error for a memory; None: target minus estimate
    metrics: tuple[tf.Tensor, ...] = ()  # [B] further ones, of which the means are reported


class Head:
    """One of the four kinds of `outputs`, and their loss.

    Attributes:
        network_method: Method of the network that gives the outputs; "" for a call.
        network_settings: (the network's attribute, the config's field) of what both must have.
        num_levels: Random levels of quantiles that an update takes.
    """

    network_method = ""
    network_settings: tuple[tuple[str, str], ...] = ()
    num_levels = 0

    @classmethod
    def of(cls, cfg: Any) -> Head:
        """The head that a config asks for."""
        raise NotImplementedError

    def levels(self, noise: tf.Tensor) -> tuple[Levels, Levels]:
        """The levels of estimates and of targets, from `num_levels` numbers in [0, 1).

        None where no quantiles are learned.
        """
        return None, None

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A] values, or [B, A, Z] numbers of a distribution, of each action."""
        return network(obs, self.network_method, **options)

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] action values at the same observations, of which these are the outputs."""
        raise NotImplementedError

    def target(self, following: Next, selection: Selection, hyper: Hyper) -> Any:
        """The target of the outputs of the action taken; no gradient passes."""
        raise NotImplementedError

    def loss(self, outputs: tf.Tensor, levels: Levels, target: Any, hyper: Hyper) -> RowLoss:
        """The loss of [B] or [B, Z] outputs of the action taken."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Scalar(Head):
    """The value of each action [B, A].

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    """

    @classmethod
    def of(cls, cfg: DQNConfig) -> Scalar:
        """Nothing to set."""
        return cls()

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """The outputs themselves."""
        return outputs

    def target(self, following: Next, selection: Selection, hyper: Hyper) -> tf.Tensor:
        """[B] targets."""
        return selection.target(
            following.reward, following.discount, following.q, following.selection_values, hyper
        )

    def loss(self, outputs: tf.Tensor, levels: Levels, target: tf.Tensor, hyper: Hyper) -> RowLoss:
        """Huber loss of the temporal differences."""
        return RowLoss(huber(target - outputs, hyper.huber_delta), target, outputs)
