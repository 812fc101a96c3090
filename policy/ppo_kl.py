"""PPO that stays near the network that it began with: for fine-tuning."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.base import Loss
from kytolly.policy.distributions import Distribution
from kytolly.policy.ppo import PPOBatch, PPOPolicy


class PPOKLPolicy(PPOPolicy):
    """PPO with a penalty on the divergence from the reference: the network before training.

    The reference is a copy of the first weights, which a checkpoint keeps.

    Source: Ziegler et al. 2019, arXiv:1909.08593; `categorical_kl` says what is different here.
    """

    metric_names = (*PPOPolicy.metric_names[:-1], "reference_kl", "grad_norm")

    def __init__(self, network: keras.Model, distribution: Any, optimizer: Any, cfg: Any):
        super().__init__(network, distribution, optimizer, cfg)
        self.reference = tf.Variable(self.weights.vector, trainable=False, name="reference")

    def begin_with(self, weights: list[Any]) -> None:
        """As for every policy; the reference is the network that training begins with."""
        super().begin_with(weights)
        self.reference.assign(self.weights.vector)

    @classmethod
    def distribution_for(cls, cfg: Any, env_spec: EnvSpec) -> Distribution:
        """A distribution for Discrete actions."""
        if not isinstance(env_spec.action, Discrete):
            raise ValueError(
                f"the actions of {env_spec.name} are a {type(env_spec.action).__name__}, and "
                f"{cfg.algorithm} needs Discrete ones. Train it with ppo."
            )
        return super().distribution_for(cfg, env_spec)

    def loss(self, batch: PPOBatch, weights: list[tf.Tensor]) -> Loss:
        """PPO's loss plus `kl_coef` times the mean divergence from the reference."""
        params, value = self.outputs(batch.obs, weights)
        ppo = self.loss_of_outputs(batch, params, value)
        reference, _ = self.outputs(batch.obs, self.weights.split(self.reference))
        kl = tf.reduce_mean(categorical_kl(params, tf.stop_gradient(reference)))
        loss = ppo.loss + self.cfg.kl_coef * kl
        return Loss(loss, (), tf.concat([[loss], ppo.metrics[1:], [kl]], axis=0))


def categorical_kl(logits: tf.Tensor, reference: tf.Tensor) -> tf.Tensor:
    """[B] KL divergence of a categorical policy from a reference, KL(policy || reference), in nats.

    It is the sum over actions of p (log p - log q): exact, where the papers estimate it by
    log p - log q of the action that was drawn, and subtract that from the reward. Here it is a term
    of the loss, so it weighs each observation by itself: no action is blamed for a divergence that
    follows later.

    Args:
        logits: [B, A] of the policy. An action that a mask forbids in both adds 0.
        reference: [B, A] logits of the reference.

    Source: Ziegler et al. 2019, arXiv:1909.08593, equation 2; Ouyang et al. 2022,
    arXiv:2203.02155, equation 2.
    """
    log_p, log_q = tf.nn.log_softmax(logits), tf.nn.log_softmax(reference)
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)
