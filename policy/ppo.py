"""Proximal policy optimization."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import Discrete, EnvSpec, MultiDiscrete
from kytolly.policy.base import Loss, Policy
from kytolly.policy.batch import Rollout, merge_time
from kytolly.policy.distributions import Categorical, Distribution, MultiCategorical
from kytolly.policy.few_columns import means
from kytolly.policy.hyper import Hyper
from kytolly.policy.losses import divergence_terms, surrogate, value_error
from kytolly.policy.returns import generalized_advantage
from kytolly.policy.weights import Weights

KL_TOLERANCE = 1.5  # times target_kl; as in OpenAI's Spinning Up and Stable-Baselines3


class PPOBatch(NamedTuple):
    """Rows of a rollout with what the acting policy thought of them."""

    obs: Any  # [B, *obs] or a dict
    action: Any  # [B, ...] raw action
    log_prob: Any  # [B] of the action, under the policy that took it
    advantage: Any  # [B] in reward units
    target: Any  # [B] value target, in reward units
    value: Any  # [B] estimate before learning, in reward units


class PPOPolicy(Policy):
    """A distribution over actions and a value, improved within a trust region by clipping.

    The network maps [B, *obs] to params [B, P] and values [B].

    Source: Schulman et al. 2017, arXiv:1707.06347; the details follow Huang et al. 2022, "The 37
    Implementation Details of Proximal Policy Optimization".
    """

    metric_names = (
        "loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "approximate_kl",
        "clip_fraction",
        "grad_norm",
    )
    cfg: PPOConfig
    distribution: Distribution
    has_value = True
    keeps_log_prob = True
    takes_masks = True

    @classmethod
    def distribution_for(cls, cfg: PPOConfig, env_spec: EnvSpec) -> Distribution:
        """A distribution for actions of every kind."""
        action = env_spec.action
        if isinstance(action, Discrete):
            return Categorical(action.count)
        if isinstance(action, MultiDiscrete):
            return MultiCategorical(tuple(action.counts))
        from kytolly.policy.continuous import make_gaussian

        return make_gaussian(action, cfg.action_bounds)

    @property
    def hyper(self) -> Hyper:
        """As for every policy; the weight of the entropy fits the actions where none is given."""
        hyper = super().hyper
        if hyper.entropy_coef is not None:
            return hyper
        return hyper._replace(entropy_coef=self.distribution.entropy_coef)

    def batch(self, rollout: Rollout, values: tf.Tensor, next_values: tf.Tensor) -> PPOBatch:
        """[T * E] rows with log-probabilities and advantages.

        Args:
            rollout: Collected with the present weights, its log-probabilities included.
            values: [T, E] estimates at `obs`, in reward units.
            next_values: [T, E] estimates at `next_obs`, in reward units.
        """
        hyper, discount = self.hyper, rollout.discount
        td_error = rollout.reward + discount * next_values - values
        advantage = generalized_advantage(td_error, discount, rollout.last, hyper.gae_lambda)
        change = advantage
        if hyper.gae_lambda_value is not None:
            value_lambda = hyper.gae_lambda_value
            change = generalized_advantage(td_error, discount, rollout.last, value_lambda)
        columns = (rollout.obs, rollout.action, rollout.log_prob, advantage, change, values)
        obs, action, log_prob, advantage, change, value = map(merge_time, columns)
        return PPOBatch(obs, action, log_prob, advantage, change + value, value)

    def weight_gradients(self, batch: PPOBatch, hyper: Hyper) -> tuple[list[tf.Tensor], Loss]:
        """As for every policy, with advantages that are normalized over all rows."""
        if self.cfg.normalize_advantage:
            batch = batch._replace(advantage=normalize(batch.advantage))
        return super().weight_gradients(batch, hyper)

    def loss(self, batch: PPOBatch, weights: Weights, hyper: Hyper) -> Loss:
        """`loss_of_outputs` of what the network gives with these weights."""
        return self.loss_of_outputs(batch, *self.outputs(batch.obs, weights), hyper)

    def loss_of_outputs(
        self, batch: PPOBatch, params: tf.Tensor, value: tf.Tensor, hyper: Hyper
    ) -> Loss:
        """Clipped surrogate, value loss and entropy bonus; metrics as `metric_names` say."""
        log_ratio = self.distribution.log_prob(params, batch.action) - batch.log_prob
        ratio = tf.exp(log_ratio)
        gain, error, entropy, kl, moved = means(
            surrogate(ratio, batch.advantage, hyper.clip_range),
            value_error(value, batch.value, batch.target, hyper.clip_range_value),
            self.distribution.entropy(params),
            divergence_terms(log_ratio),
            tf.cast(tf.abs(ratio - 1.0) > hyper.clip_range, tf.float32),
        )
        loss = -gain + hyper.value_coef * error - hyper.entropy_coef * entropy
        metrics = [loss, -gain, error, entropy, kl, moved]
        return Loss(loss, None, tf.stack(metrics))

    def apply(self, vector: tf.Tensor, hyper: Hyper | None = None) -> None:
        """As for every policy; the average moves with each update."""
        super().apply(vector, hyper)
        if self.average_vector is not None:
            weights = tf.convert_to_tensor(self.weights.vector)
            average = self.changed_average(self.average_vector, weights, self.updates)
            self.average_vector.assign(average)

    def should_continue(self, update: Loss) -> tf.Tensor | None:
        """[] bool, whether the KL divergence allows another update; None without a `target_kl`."""
        target_kl = self.hyper.target_kl
        if target_kl is None:
            return None
        kl = update.metrics[self.metric_names.index("approximate_kl")]
        return kl <= KL_TOLERANCE * target_kl


def normalize(advantage: tf.Tensor) -> tf.Tensor:
    """[B] advantages with mean 0 and deviation 1."""
    centred = advantage - tf.reduce_mean(advantage)
    return centred / (tf.math.reduce_std(advantage) + 1e-8)
