"""Acting while learning by draws from the policy's own distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import uniform

if TYPE_CHECKING:
    from kytolly.agent.acting import HostObs
    from kytolly.agent.exploration import HostParams
    from kytolly.config.ppo import PPOConfig
    from kytolly.policy.batch import Rollout
    from kytolly.policy.distributions import Distribution

Noise = TypeVar("Noise", tf.Tensor, np.ndarray)


class Sampling:
    """Draws from the policy's own distribution; noise of continuous actions may be correlated."""

    gives_log_prob = True
    gives_explored = False
    metric_names = ()
    final_state = np.zeros(0)

    def __init__(self, cfg: PPOConfig, distribution: Distribution):
        self.distribution, self.num_random_words = distribution, distribution.num_uniforms
        self.correlation = cfg.noise_correlation if distribution.num_scales else 0.0

    def observe(self, rollout: Rollout) -> None:
        """Nothing: the policy alone says what is drawn."""

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[0]: the distribution is all there is to know."""
        return tf.zeros([0])

    def noise(self, random_bits: tf.Tensor, env_steps: tf.Tensor) -> tf.Tensor:
        """[T, E, N] noise from as many words."""
        return self._correlate(self.distribution.noise(uniform(random_bits)))

    def action(self, params: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[E, ...] raw actions from params [E, P] and [E, N] noise; their [E] log-probabilities."""
        action = self.distribution.sample(params, noise)
        return action, self.distribution.log_prob(params, action)

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> np.ndarray:
        """[T, E, N] noise for a `shape` (T, E)."""
        return self._correlate(self.distribution.host_noise(rng, shape))

    def host_action(self, params: HostParams, obs: HostObs, noise: np.ndarray) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]."""
        return self.distribution.host_sample(params(obs), noise)

    def _correlate(self, noise: Noise) -> Noise:
        return correlate(noise, self.correlation) if self.correlation else noise


def correlate(noise: Noise, correlation: float) -> Noise:
    """Noise whose every number leans on the previous: e[t] = c e[t-1] + sqrt(1 - c^2) noise[t].

    Each number stays standard normal, so probabilities are as without; only neighbors in time
    resemble each other, and exploration goes somewhere instead of trembling. Every rollout begins
    afresh.

    Args:
        noise: [T, ...] independent standard normal numbers, a tensor or an array.
        correlation: `c`, of neighbors in time, in (0, 1).

    Source: Hollenstein et al. 2024, arXiv:2312.11091, with first-order noise.
    """
    share = math.sqrt(1.0 - correlation**2)
    steps = int(noise.shape[0] or 0)
    scale = np.ones([steps, *[1] * (len(noise.shape) - 1)], np.float32)
    scale[1:] = share
    result: Any = noise * scale
    weight, step = correlation, 1
    concat = tf.concat if tf.is_tensor(noise) else np.concatenate
    while step < steps:  # by doubling, as policy.returns.weighted_sums
        result = concat([result[:step], result[step:] + weight * result[:-step]], 0)
        weight, step = weight**2, 2 * step
    return result
