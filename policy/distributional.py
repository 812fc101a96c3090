"""Q-learning of distributions of the return: C51, QR-DQN and IQN.

Each is a head, which works with every `policy.selection`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.environment.fusion_barrier import loop_fusion_barrier, on_gpu
from kytolly.policy.batch import Obs
from kytolly.policy.few_columns import row_sum, sums
from kytolly.policy.heads import Head, Levels, Network, Next, RowLoss
from kytolly.policy.hyper import Hyper, Number
from kytolly.policy.q_learning import QLearningPolicy
from kytolly.policy.selection import Selection
from kytolly.policy.value_learning import huber

SMALLEST = 1e-30  # probability whose logarithm is taken
PARTS = 3  # of the values whose projections are summed at once


@dataclasses.dataclass(frozen=True, eq=False)
class Categorical(Head):
    """Logits [B, A, Z] of evenly spaced returns, the atoms: C51.

    With prioritized replay a row's error is the divergence of the estimate from the target, in
    nats.

    Args:
        atoms: [Z] returns, in reward units.
        prioritized: A memory wants to know the divergence.

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

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] means of the atoms."""
        return tf.reduce_sum(tf.nn.softmax(outputs) * self.atoms, axis=-1)

    def target(
        self, following: Next, selection: Selection, hyper: Hyper
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, Z] probabilities of the atoms, and [B, Z] those of returns that were clipped.

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
        projected = _projection(moved, next_probability, atoms, following.always)
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
        terms = [probability * log_prob, probability * self.atoms]
        terms += [tf.exp(log_prob) * self.atoms, clipped]
        if self.prioritized:
            terms.append(probability * tf.math.log(tf.maximum(probability, SMALLEST)))
        agreement, target_mean, estimate, share, *entropy = sums(*terms)
        divergence = -agreement + entropy[0] if entropy else None
        return RowLoss(-agreement, target_mean, estimate, divergence, (share,))


class Quantiles(Head):
    """Samples of the return and their loss, for the heads of quantiles [B, A, N]."""

    def target(self, following: Next, selection: Selection, hyper: Hyper) -> tf.Tensor:
        """[B, M] samples of the return, from [B, A, M] quantiles of what follows."""
        probability, entropy = selection.policy(following.selection_values, hyper)
        next_return = expected_over_actions(following.outputs, probability)
        if entropy is not None:
            next_return += entropy[:, tf.newaxis]
        discounted = following.discount[:, tf.newaxis] * next_return
        return tf.stop_gradient(following.reward[:, tf.newaxis] + discounted)

    def loss(self, outputs: tf.Tensor, levels: Levels, target: tf.Tensor, hyper: Hyper) -> RowLoss:
        """Quantile Huber loss of [B, N] quantiles at levels [N]."""
        loss = quantile_huber(outputs, target, levels, hyper.huber_delta)
        return RowLoss(loss, *(tf.reduce_mean(part, axis=-1) for part in (target, outputs)))


@dataclasses.dataclass(frozen=True)
class Quantile(Quantiles):
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

    def levels(self, noise: tf.Tensor) -> tuple[Levels, Levels]:
        """[N] the same in all updates."""
        from kytolly.model.distributional_mlp import quantile_midpoints

        levels = tf.constant(quantile_midpoints(self.count))
        return levels, levels

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] means of the quantiles."""
        return tf.reduce_mean(outputs, axis=-1)


@dataclasses.dataclass(frozen=True)
class ImplicitQuantile(Quantiles):
    """Quantiles [B, A, N] at levels that are drawn anew for each update: IQN.

    One level is drawn in each of N equal parts of [0, 1], for all rows of a batch; the paper draws
    N anywhere, for each row. The next action is selected by the mean of evenly spaced quantiles, as
    in acting; the paper draws their levels too.

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

    @property
    def num_levels(self) -> int:
        """Those of estimates and of targets."""
        return self.estimates + self.targets

    def levels(self, noise: tf.Tensor) -> tuple[Levels, Levels]:
        """[N] and [M]."""
        estimates, targets = tf.split(noise, [self.estimates, self.targets])
        return level_in_each_part(estimates), level_in_each_part(targets)

    def outputs(
        self, network: Network, obs: Obs, levels: Levels, **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A, N] quantiles at these levels."""
        quantiles = network(obs, self.network_method, levels=levels, **options)
        return tf.transpose(quantiles, [0, 2, 1])

    def action_values(self, network: Network, obs: Obs, outputs: tf.Tensor) -> tf.Tensor:
        """[B, A] means of quantiles at even levels, which are not those of the outputs."""
        return network(obs)


def level_in_each_part(uniform: tf.Tensor) -> tf.Tensor:
    """[N] levels, one in each of N equal parts of [0, 1], from [N] numbers in [0, 1)."""
    count = uniform.shape[0]
    return (tf.range(count, dtype=tf.float32) + uniform) / count


def expected_over_actions(outputs: tf.Tensor, probability: tf.Tensor) -> tf.Tensor:
    """[B, Z] mean over actions of [B, A, Z], each by its probability [B, A]."""
    return row_sum(tf.multiply, outputs, tf.expand_dims(probability, -1), axis=1)


def quantile_huber(
    estimate: tf.Tensor, target: tf.Tensor, level: tf.Tensor, delta: Number
) -> tf.Tensor:
    """[B] loss that is least where each quantile has its level's share of the samples below it.

    Args:
        estimate: [B, N] quantiles, in reward units.
        target: [B, M] samples, or quantiles of even weight, in reward units.
        level: [N], or [B, N], level in [0, 1] of each quantile.
        delta: Where the loss turns linear, in reward units.

    Returns:
        [B] sums over the quantiles of means over the samples, in reward units.

    Source: Dabney et al. 2018, arXiv:1806.06923, equation 3; arXiv:1710.10044, equation 10, has
    `delta` times as much.
    """
    error = target[:, tf.newaxis] - estimate[:, :, tf.newaxis]  # [B, N, M]
    weight = tf.abs(tf.expand_dims(level, -1) - tf.cast(error < 0.0, tf.float32))
    return tf.reduce_sum(tf.reduce_mean(weight * huber(error, delta) / delta, axis=-1), axis=-1)


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
    projected, clipped = _projection(value, probability, atoms, always)
    return projected, tf.reduce_sum(clipped, axis=-1)


def _projection(
    value: tf.Tensor, probability: tf.Tensor, atoms: tf.Tensor, always: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """As `categorical_projection`, with [B, Z] probabilities of the values beyond the atoms."""
    # Not the difference of two neighbors, of which rounding leaves little where they are close.
    step = (atoms[-1] - atoms[0]) / (int(atoms.shape[0]) - 1)
    inside = tf.clip_by_value(value, atoms[0], atoms[-1])
    # Summed over the middle axis and in parts: a program then needs no [B, Z, Z] numbers at once.
    parts = 1 if on_gpu() else PARTS
    sizes = [len(part) for part in np.array_split(np.arange(int(value.shape[1])), parts)]
    places = loop_fusion_barrier((inside - atoms[0]) / step, always)  # not for each atom
    places = tf.split(places, sizes, axis=1)
    place, projected = tf.range(atoms.shape[0], dtype=tf.float32), tf.zeros([])
    for part, weight in zip(places, tf.split(probability, sizes, axis=1), strict=True):
        share = tf.nn.relu(1.0 - tf.abs(part[:, :, tf.newaxis] - place))
        projected += tf.reduce_sum(share * weight[:, :, tf.newaxis], axis=1)
    beyond = tf.cast(tf.abs(value - inside) > 1e-3 * step, tf.float32)
    return projected, beyond * probability


class C51Policy(QLearningPolicy):
    """Q-learning of the probabilities of evenly spaced returns: C51, and Rainbow's learner."""

    metric_names = ("loss", "td_error", "q_mean", "clipped_targets", "grad_norm")
    head_type = Categorical


class QRDQNPolicy(QLearningPolicy):
    """Q-learning of quantiles at fixed levels."""

    head_type = Quantile


class IQNPolicy(QLearningPolicy):
    """Q-learning of quantiles at random levels."""

    head_type = ImplicitQuantile
