"""Exploration by the policy's own distribution, with its twin in NumPy for acting on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import uniforms
from kytolly.policy.distributions import Distribution


class Sampling:
    """Draws from the policy's own distribution.

    Args:
        cfg: Configuration.
        distribution: Of the policy.
    """

    gives_log_prob = True
    metric_names = ()

    def __init__(self, cfg: Any, distribution: Distribution):
        self.distribution, self.draws = distribution, distribution.num_uniforms
        # Only continuous actions have noise that can be correlated.
        self.correlation = cfg.noise_correlation if distribution.num_scales else 0.0

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[0]: the distribution is all there is to know."""
        return tf.zeros([0])

    def noise(self, bits: tf.Tensor, env_steps: tf.Tensor) -> tf.Tensor:
        """[T, E, N] noise from as many words."""
        return correlate(self.distribution.noise(uniforms(bits)), self.correlation)

    def action(self, params: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, ...] raw actions from params [E, P] and [E, N] noise; their [E] log-probabilities."""
        action = self.distribution.sample(params, noise)
        return action, self.distribution.log_prob(params, action)

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> np.ndarray:
        """[T, E, N] noise."""
        return correlate(self.distribution.host_noise(rng, shape), self.correlation)

    def host_action(
        self, params: Callable[[Any], np.ndarray], obs: Any, noise: np.ndarray
    ) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]."""
        return self.distribution.host_sample(params(obs), noise)


def correlate(noise: Any, correlation: float) -> Any:
    """Noise whose every number leans on the previous: e[t] = c e[t-1] + sqrt(1 - c^2) noise[t].

    Each number stays standard normal, so probabilities are as without; only neighbors in time
    resemble each other, and exploration goes somewhere instead of trembling. Every rollout begins
    afresh.

    Args:
        noise: [T, ...] independent standard normal numbers, a tensor or an array.
        correlation: `c`, of neighbors in time, in [0, 1).

    Source: Hollenstein et al. 2024, arXiv:2312.11091, with first-order noise.
    """
    if not correlation:
        return noise
    share = math.sqrt(1.0 - correlation**2)
    scale = np.full([noise.shape[0]] + [1] * (len(noise.shape) - 1), share, np.float32)
    scale[0] = 1.0
    result, weight, step = noise * scale, correlation, 1
    concat = tf.concat if tf.is_tensor(noise) else np.concatenate
    while step < noise.shape[0]:  # by doubling, as policy.policy_gradient.generalized_advantage
        result = concat([result[:step], result[step:] + weight * result[:-step]], 0)
        weight, step = weight**2, 2 * step
    return result
