"""Proximal policy optimisation."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from kytolly.config.ppo import PPOConfig
from kytolly.policy import losses, targets
from kytolly.policy.batch import PPOBatch, Rollout
from kytolly.policy.clipping import clipped_by_global_norm
from kytolly.policy.distributions import Distribution
from kytolly.policy.flat_weights import FlatWeights, laid_end_to_end

MASK = "action_mask"  # entry of a Dict observation that is no observation


class PPOPolicy(tf.Module):
    """Network, action distribution, optimiser and the compiled step that joins them.

    Args:
        network: Built Keras model [B, *obs] -> (params [B, P], value [B]); of a Dict observation
            it gets the dict without its `action_mask`.
        distribution: Reads the params.
        optimizer: Keras optimiser.
        cfg: Settings.

    Source: Schulman et al. 2017, arXiv:1707.06347; the details follow Huang et al. 2022, "The 37
    Implementation Details of Proximal Policy Optimization".
    """

    figure_names = (
        "loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "approximate_kl",
        "clip_fraction",
        "grad_norm",
    )

    def __init__(
        self,
        network: keras.Model,
        distribution: Distribution,
        optimizer: keras.optimizers.Optimizer,
        cfg: PPOConfig,
    ):
        super().__init__(name="ppo")
        self.network, self.distribution, self.cfg = network, distribution, cfg
        self.optimizer = optimizer
        self._weights = FlatWeights(network.trainable_variables, optimizer)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.fit_step = tf.function(self.update, jit_compile=cfg.xla)

    def outputs(self, obs: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Params [B, P] of the action distribution, masked, and values [B]."""
        return network_outputs(self.network, self.distribution, obs)

    def batch(self, rollout: Rollout, cut_once: bool = False) -> PPOBatch:
        """[T * E] rows with log-probabilities, values and advantages under the present weights.

        Args:
            rollout: Collected with the present weights.
            cut_once: No copy is truncated more than once within the rollout, which saves work.
        """
        rows = Rollout(*(tf.nest.map_structure(flat, column) for column in rollout))
        params, value = self.outputs(rows.obs)
        log_prob = rows.log_prob
        if isinstance(log_prob, tuple):
            log_prob = self.distribution.log_prob(params, rows.action)
        values = tf.reshape(value, rollout.reward.shape)
        td_error = (
            rollout.reward
            + rollout.discount * self._next_values(rollout, values, cut_once)
            - values
        )
        advantage = targets.generalized_advantage(
            td_error, rollout.discount, rollout.last, self.cfg.gae_lambda
        )
        advantage = flat(advantage)
        return PPOBatch(rows.obs, rows.action, log_prob, advantage, advantage + value, value)

    def _next_values(self, rollout: Rollout, values: tf.Tensor, cut_once: bool) -> tf.Tensor:
        """[T, E] values of what each step led to.

        They are the values of the next rows, but for the last row and where an episode was cut
        off. If no copy can be cut off twice within a rollout, those are two observations a copy.
        """
        if not cut_once:
            next_rows = tf.nest.map_structure(flat, rollout.next_obs)
            return tf.reshape(self.outputs(next_rows)[1], values.shape)
        cut = rollout.last & (rollout.discount > 0.0)
        when = tf.argmax(tf.cast(cut, tf.int32), axis=0, output_type=tf.int32)
        copies = tf.range(values.shape[1])

        def beyond(column):
            at_cut = tf.gather_nd(column, tf.stack([when, copies], axis=-1))
            return tf.concat([at_cut, column[-1]], axis=0)

        at_cut, at_end = tf.split(
            self.outputs(tf.nest.map_structure(beyond, rollout.next_obs))[1], 2
        )
        following = tf.concat([values[1:], at_end[tf.newaxis]], axis=0)
        return tf.where(cut, at_cut, following)

    def gradient(self, batch: PPOBatch) -> tuple[tf.Tensor, tf.Tensor]:
        """The clipped gradient [W] of all trainable weights end to end, and the figures [F].

        With `gradient_accumulation` K the rows are taken in K parts, one after the other, which
        needs the memory of one part and gives the gradients of all rows together.
        """
        cfg = self.cfg
        if cfg.normalize_advantage:
            batch = batch._replace(advantage=normalised(batch.advantage))
        if cfg.gradient_accumulation == 1:
            gradient, figures = self._part_gradient(batch)
        else:
            gradient, figures = self._accumulated(batch, cfg.gradient_accumulation)
        loss_scale = self.optimizer.scale_loss(1.0)
        (gradient,), norm = clipped_by_global_norm([gradient], cfg.max_grad_norm * loss_scale)
        return gradient, tf.concat([figures, [norm / loss_scale]], axis=0)

    def apply(self, gradient: tf.Tensor) -> None:
        """One optimiser step with a [W] gradient."""
        self._weights.step(gradient)
        self.updates.assign_add(1)

    def update(self, batch: PPOBatch) -> tf.Tensor:
        """One update, and its figures [F] in the order of `figure_names`.

        `fit_step` is this method compiled.
        """
        gradient, figures = self.gradient(batch)
        self.apply(gradient)
        return figures

    def _part_gradient(self, batch: PPOBatch) -> tuple[tf.Tensor, tf.Tensor]:
        cfg = self.cfg
        with tf.GradientTape() as tape:
            params, value = self.outputs(batch.obs)
            log_ratio = self.distribution.log_prob(params, batch.action) - batch.log_prob
            ratio = tf.exp(log_ratio)
            policy_loss = losses.clipped_surrogate(ratio, batch.advantage, cfg.clip_range)
            value_loss = losses.value_loss(value, batch.value, batch.target, cfg.clip_range_value)
            entropy = tf.reduce_mean(self.distribution.entropy(params))
            loss = policy_loss + cfg.value_coef * value_loss - cfg.entropy_coef * entropy
            scaled = self.optimizer.scale_loss(loss)
        weights = self.network.trainable_variables
        grads = tape.gradient(scaled, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        moved = tf.cast(tf.abs(ratio - 1.0) > cfg.clip_range, tf.float32)
        kl = losses.approximate_kl(log_ratio)
        figures = [loss, policy_loss, value_loss, entropy, kl, tf.reduce_mean(moved)]
        return laid_end_to_end(grads), tf.stack(figures)

    def _accumulated(self, batch: PPOBatch, parts: int) -> tuple[tf.Tensor, tf.Tensor]:
        def split(column):
            return tf.reshape(column, [parts, column.shape[0] // parts, *column.shape[1:]])

        columns = tf.nest.map_structure(split, batch)

        def part(index):
            return self._part_gradient(
                tf.nest.map_structure(lambda column: tf.gather(column, index), columns)
            )

        zeros = tf.zeros([self._weights.size])
        begin = (tf.constant(0), zeros, tf.zeros([len(self.figure_names) - 1]))
        _, gradient, figures = tf.while_loop(
            lambda index, *_: index < parts,
            lambda index, *sums: (
                index + 1,
                *tf.nest.map_structure(tf.add, sums, part(index)),
            ),
            begin,
        )
        return gradient / parts, figures / parts


def network_outputs(
    network: keras.Model, distribution: Distribution, obs: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Params [B, P], masked, and values [B] of a network."""
    params, value = (tf.cast(part, tf.float32) for part in network(without_mask(obs)))
    if isinstance(obs, dict) and MASK in obs:
        params = distribution.masked(params, obs[MASK])
    return params, tf.reshape(value, [-1])


def greedy_action(network: keras.Model, distribution: Distribution, obs: Any) -> tf.Tensor:
    """What the environment gets if every copy takes its most likely action."""
    params, _ = network_outputs(network, distribution, obs)
    return distribution.to_env(distribution.mode(params))


def without_mask(obs: Any) -> Any:
    """What the network sees of an observation."""
    if not isinstance(obs, dict):
        return obs
    return {name: part for name, part in obs.items() if name != MASK}


def flat(column: tf.Tensor) -> tf.Tensor:
    """[T * E, ...] from [T, E, ...]."""
    return tf.reshape(column, [column.shape[0] * column.shape[1], *column.shape[2:]])


def normalised(advantage: tf.Tensor) -> tf.Tensor:
    """[B] advantages with mean 0 and deviation 1."""
    centred = advantage - tf.reduce_mean(advantage)
    return centred / (tf.math.reduce_std(advantage) + 1e-8)
