"""Exploration by the policy's own distribution, with its twin in NumPy for acting on the host."""

from __future__ import annotations

# `Distribution` says in words what a subclass adds.
# pyright: reportAttributeAccessIssue=false
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import uniforms
from kytolly.policy.distributions import Distribution


class Sampling:
    """Draws from the policy's own distribution; noise of continuous actions may be correlated."""

    gives_log_prob = True
    metric_names = ()
    final_state = np.zeros(0)

    def __init__(self, cfg: Any, distribution: Distribution):
        self.distribution, self.draws = distribution, distribution.num_uniforms
        self.correlation = cfg.noise_correlation if distribution.num_scales else 0.0

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[0]: the distribution is all there is to know."""
        return tf.zeros([0])

    def noise(self, bits: tf.Tensor, env_steps: tf.Tensor) -> tf.Tensor:
        """[T, E, N] noise from as many words."""
        return self._correlate(self.distribution.noise(uniforms(bits)))

    def action(self, params: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, ...] raw actions from params [E, P] and [E, N] noise; their [E] log-probabilities."""
        action = self.distribution.sample(params, noise)
        return action, self.distribution.log_prob(params, action)

    def host_noise(self, rng: np.random.Generator, shape: Any, state: np.ndarray) -> np.ndarray:
        """[T, E, N] noise for a `shape` (T, E)."""
        return self._correlate(self.distribution.host_noise(rng, shape))

    def host_action(
        self, params: Callable[[Any], np.ndarray], obs: Any, noise: np.ndarray
    ) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]."""
        return self.distribution.host_sample(params(obs), noise)

    def _correlate(self, noise: Any) -> Any:
        if not self.correlation:
            return noise
        from kytolly.agent.correlated_noise import correlate

        return correlate(noise, self.correlation)
