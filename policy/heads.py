"""What Q-learning learns of each action: a value, or a distribution of the return.

A head says what a network gives for each action, which targets belong to it, and its loss. Each
works with every `policy.selection`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.policy.action_values import expected_over_actions
from kytolly.policy.batch import Obs
from kytolly.policy.hyper import Hyper
from kytolly.policy.losses import huber, quantile_huber
from kytolly.policy.projections import categorical_projection
from kytolly.policy.selection import Selection

SMALLEST = 1e-30  # probability whose logarithm is taken
Levels = tf.Tensor | None  # [B, N] or [N], in [0, 1], of the quantiles that a head learns


class Network(Protocol):
    """A network with weights: action values [B, A], or what one of its methods gives."""

    def __call__(self, obs: Obs, method: str = "", **options: bool | tf.Tensor) -> tf.Tensor:
        """What `method` of the network gives for [B, *obs]; "" for a call."""
        ...


class Next(NamedTuple):
    """What follows each row, as the target network sees it."""

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
    metrics: tuple[tf.Tensor, ...] = ()  # [] further ones


class Head(Protocol):
    """One of the four kinds of `outputs` below, and how they are learned."""

    network_method: str  # of the network that gives the outputs; "" for a call
    network_settings: tuple[tuple[str, str], ...]  # (the network's attribute, the config's field)

    @classmethod
    def of(cls, cfg: Any) -> Head:
        """The head that a config asks for."""
        ...

    def levels(self, noise: tf.Tensor | None) -> tuple[Levels, Levels]:
        """The levels of estimates and of targets, from [B, N] numbers of a batch in [0, 1)."""
        ...

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A] or [B, A, Z] what is learned of each action."""
        ...

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] action values at the same observations, of which these are the outputs."""
        ...

    def target(self, following: Next, selection: Selection, hyper: Hyper) -> Any:
        """What the outputs of the action taken should be; no gradient passes."""
        ...

    def loss(self, outputs: tf.Tensor, levels: Levels, target: Any, hyper: Hyper) -> RowLoss:
        """The loss of [B] or [B, Z] outputs of the action taken."""
        ...


@dataclasses.dataclass(frozen=True)
class Scalar:
    """The value of each action [B, A].

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    """

    network_method = ""
    network_settings = ()

    @classmethod
    def of(cls, cfg: DQNConfig) -> Scalar:
        """Nothing to set."""
        return cls()

    def levels(self, noise: tf.Tensor | None) -> tuple[Levels, Levels]:
        """None."""
        return None, None

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A] action values."""
        return network(obs, **options)

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


@dataclasses.dataclass(frozen=True, eq=False)
class Categorical:
    """Logits [B, A, Z] of evenly spaced returns, the atoms: C51.

    With prioritized replay a row's error is the divergence of the estimate from the target, in
    nats.

    Args:
        atoms: [Z] returns, in reward units.
        prioritized: Whether a memory wants to know the divergence.

    Source: Bellemare, Dabney & Munos 2017, arXiv:1707.06887, algorithm 1; for the priorities
    Hessel et al. 2018, arXiv:1710.02298, section "The Integrated Agent".
    """

    atoms: np.ndarray
    prioritized: bool = False
    network_method = "atom_logits"
    network_settings = (
        ("num_outputs", "num_atoms"),
        ("value_min", "value_min"),
        ("value_max", "value_max"),
    )

    @classmethod
    def of(cls, cfg: Any) -> Categorical:
        """The atoms of a `C51Config`."""
        atoms = np.linspace(cfg.value_min, cfg.value_max, cfg.num_atoms, dtype=np.float32)
        return cls(atoms, cfg.prioritized)

    def levels(self, noise: tf.Tensor | None) -> tuple[Levels, Levels]:
        """None."""
        return None, None

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A, Z] logits."""
        return network(obs, self.network_method, **options)

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] means of the atoms."""
        return tf.reduce_sum(tf.nn.softmax(outputs) * self.atoms, axis=-1)

    def target(
        self, following: Next, selection: Selection, hyper: Hyper
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, Z] probabilities of the atoms, and [B] the share of them that was clipped.

        Each return is moved by the reward and the discount; the atoms stay.
        """
        probability, entropy = selection.policy(following.selection_values, hyper)
        if entropy is None:  # of one action: a softmax of its logits is cheaper
            next_probability = tf.nn.softmax(expected_over_actions(following.outputs, probability))
            next_return = self.atoms
        else:
            next_probability = expected_over_actions(tf.nn.softmax(following.outputs), probability)
            next_return = self.atoms + entropy[:, tf.newaxis]
        discounted = following.discount[:, tf.newaxis] * next_return
        moved = following.reward[:, tf.newaxis] + discounted
        atoms = tf.constant(self.atoms)
        projected = categorical_projection(moved, next_probability, atoms, following.always)
        return tf.nest.map_structure(tf.stop_gradient, projected)

    def loss(
        self,
        outputs: tf.Tensor,
        levels: Levels,
        target: tuple[tf.Tensor, tf.Tensor],
        hyper: Hyper,
    ) -> RowLoss:
        """Cross-entropy of the targets; a further metric is the share that was clipped."""
        probability, clipped = target
        log_prob = tf.nn.log_softmax(outputs)
        cross_entropy = -tf.reduce_sum(probability * log_prob, axis=-1)
        divergence = None
        if self.prioritized:
            log_target = tf.math.log(tf.maximum(probability, SMALLEST))
            divergence = cross_entropy + tf.reduce_sum(probability * log_target, axis=-1)
        target_mean = tf.reduce_sum(probability * self.atoms, axis=-1)
        estimate = tf.reduce_sum(tf.exp(log_prob) * self.atoms, axis=-1)
        metrics = (tf.reduce_mean(clipped),)
        return RowLoss(cross_entropy, target_mean, estimate, divergence, metrics)


@dataclasses.dataclass(frozen=True)
class Quantile:
    """Quantiles [B, A, N] in the middles of `count` equal parts of [0, 1]: QR-DQN.

    Source: Dabney et al. 2018, arXiv:1710.10044, algorithm 1.
    """

    count: int
    network_method = "middle_quantiles"
    network_settings = (("num_outputs", "num_quantiles"),)

    @classmethod
    def of(cls, cfg: Any) -> Quantile:
        """The number of quantiles of a `QRDQNConfig`."""
        return cls(cfg.num_quantiles)

    def levels(self, noise: tf.Tensor | None) -> tuple[Levels, Levels]:
        """[N] the same for all rows."""
        from kytolly.model.distributional_mlp import quantile_midpoints

        levels = tf.constant(quantile_midpoints(self.count))
        return levels, levels

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A, N] quantiles."""
        return network(obs, self.network_method, **options)

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] means of the quantiles."""
        return tf.reduce_mean(outputs, axis=-1)

    def target(self, following: Next, selection: Selection, hyper: Hyper) -> tf.Tensor:
        """[B, M] targets: samples of the return."""
        return quantile_target(following, selection, hyper)

    def loss(self, outputs: tf.Tensor, levels: Levels, target: tf.Tensor, hyper: Hyper) -> RowLoss:
        """Quantile Huber loss."""
        return quantile_loss(outputs, levels, target, hyper)


@dataclasses.dataclass(frozen=True)
class ImplicitQuantile:
    """Quantiles [B, A, N] at levels that are drawn anew for each row: IQN.

    The next action is selected by the mean of evenly spaced quantiles, as in acting; the paper
    draws their levels too.

    Args:
        estimates: Levels of the estimate of a row.
        targets: Levels of its target.

    Source: Dabney et al. 2018, arXiv:1806.06923, algorithm 1.
    """

    estimates: int
    targets: int
    network_method = "action_quantiles"
    network_settings = (("num_levels", "num_acting_quantiles"),)

    @classmethod
    def of(cls, cfg: Any) -> ImplicitQuantile:
        """The numbers of levels of an `IQNConfig`."""
        return cls(cfg.num_quantiles, cfg.num_target_quantiles)

    def levels(self, noise: tf.Tensor | None) -> tuple[Levels, Levels]:
        """[B, N] and [B, M]."""
        count = self.estimates + self.targets
        if noise is None:
            raise ValueError(
                f"a batch without noise was found, expected [B, {count}] random numbers in [0, 1): "
                "give them as Transition(..., noise=numbers)."
            )
        estimates, targets = tf.split(noise, [self.estimates, self.targets], axis=1)
        return estimates, targets

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A, N] quantiles at these levels."""
        quantiles = network(obs, self.network_method, levels=levels, **options)
        return tf.transpose(quantiles, [0, 2, 1])

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] means of quantiles at even levels, which are not those of the outputs."""
        # The even levels are the same for all rows, so their features are computed once.
        return network(obs)

    def target(self, following: Next, selection: Selection, hyper: Hyper) -> tf.Tensor:
        """[B, M] targets: samples of the return."""
        return quantile_target(following, selection, hyper)

    def loss(self, outputs: tf.Tensor, levels: Levels, target: tf.Tensor, hyper: Hyper) -> RowLoss:
        """Quantile Huber loss."""
        return quantile_loss(outputs, levels, target, hyper)


def quantile_target(following: Next, selection: Selection, hyper: Hyper) -> tf.Tensor:
    """[B, M] samples of the return, from [B, A, M] quantiles of what follows."""
    probability, entropy = selection.policy(following.selection_values, hyper)
    next_return = expected_over_actions(following.outputs, probability)
    if entropy is not None:
        next_return += entropy[:, tf.newaxis]
    discounted = following.discount[:, tf.newaxis] * next_return
    return tf.stop_gradient(following.reward[:, tf.newaxis] + discounted)


def quantile_loss(quantiles: tf.Tensor, levels: Levels, target: tf.Tensor, hyper: Hyper) -> RowLoss:
    """Quantile Huber loss of [B, N] quantiles at levels [B, N] or [N], and of [B, M] samples."""
    loss = quantile_huber(quantiles, target, levels, hyper.huber_delta)
    return RowLoss(loss, *(tf.reduce_mean(part, axis=-1) for part in (target, quantiles)))
