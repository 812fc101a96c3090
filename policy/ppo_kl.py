"""PPO that stays near the network that it began with: for fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.ppo_kl import PPOKLConfig
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.base import Loss
from kytolly.policy.distributions import Distribution
from kytolly.policy.hyper import Hyper
from kytolly.policy.losses import categorical_kl
from kytolly.policy.ppo import PPOBatch, PPOPolicy
from kytolly.policy.weights import Weights


class PPOKLPolicy(PPOPolicy):
    """PPO with a penalty on the divergence from the reference: the network before training.

    The reference is a copy of the first weights, which a checkpoint keeps.

    Source: Ziegler et al. 2019, arXiv:1909.08593; `categorical_kl` says what is different here.
    """

    metric_names = (*PPOPolicy.metric_names[:-1], "reference_kl", "grad_norm")

    def __init__(
        self,
        network: keras.Model,
        distribution: Distribution,
        optimizer: keras.optimizers.Optimizer,
        cfg: PPOKLConfig,
    ):
        super().__init__(network, distribution, optimizer, cfg)
        self.reference = tf.Variable(self.weights.vector, trainable=False, name="reference")

    def begin_with(self, weights: Sequence[np.ndarray]) -> None:
        """As for every policy; the reference is the network that training begins with."""
        super().begin_with(weights)
        self.reference.assign(self.weights.vector)

    @classmethod
    def distribution_for(cls, cfg: PPOKLConfig, env_spec: EnvSpec) -> Distribution:
        """A distribution for Discrete actions."""
        if not isinstance(env_spec.action, Discrete):
            raise ValueError(
                f"the actions of {env_spec.name} are a {type(env_spec.action).__name__}, and "
                f"{cfg.algorithm} needs Discrete ones. Train it with ppo."
            )
        return super().distribution_for(cfg, env_spec)

    def loss(self, batch: PPOBatch, weights: Weights, hyper: Hyper) -> Loss:
        """PPO's loss plus `kl_coef` times the mean divergence from the reference."""
        params, value = self.outputs(batch.obs, weights)
        ppo = self.loss_of_outputs(batch, params, value, hyper)
        reference, _ = self.outputs(batch.obs, self.weights.split(self.reference))
        kl = tf.reduce_mean(categorical_kl(params, tf.stop_gradient(reference)))
        loss = ppo.loss + hyper.kl_coef * kl
        return Loss(loss, None, tf.concat([[loss], ppo.metrics[1:], [kl]], axis=0))
