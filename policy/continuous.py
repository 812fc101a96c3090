"""Distributions over continuous actions, and the choice of a distribution for an environment."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import ActionSpace, Discrete, MultiDiscrete
from kytolly.policy.distributions import Categorical, Distribution, MultiCategorical

LOG_STD_RANGE = (-20.0, 2.0)
HERMITE_POINTS = 20


class Gaussian(NamedTuple):
    """Independent normal numbers [B, D] from means, then log standard deviations.

    The environment gets them clipped to its bounds; the probability is that of the unclipped
    number, as in Stable-Baselines3 and CleanRL.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def num_params(self) -> int:
        """A mean and a log standard deviation for each number."""
        return 2 * len(self.low)

    @property
    def num_scales(self) -> int:
        """The log standard deviations."""
        return len(self.low)

    @property
    def num_uniforms(self) -> int:
        """One draw for each number."""
        return len(self.low)

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Refuses: continuous actions have no mask."""
        raise ValueError("an action mask was found, and the actions are a Box: remove the mask.")

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """Standard normal numbers, through the inverse of the normal distribution."""
        return standard_normal(uniforms)

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """[B, D]: the means plus the noise times the deviations."""
        mean, log_std = mean_and_log_std(params)
        return mean + tf.exp(log_std) * noise

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B, D] means."""
        return mean_and_log_std(params)[0]

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log-density, summed over the numbers."""
        mean, log_std = mean_and_log_std(params)
        z = (action - mean) * tf.exp(-log_std)
        return -tf.reduce_sum(0.5 * z * z + log_std + 0.5 * math.log(2.0 * math.pi), axis=-1)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] nats; it may be negative, as of any density."""
        log_std = mean_and_log_std(params)[1]
        return tf.reduce_sum(log_std + 0.5 * math.log(2.0 * math.pi * math.e), axis=-1)

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """Clipped to the bounds."""
        return tf.clip_by_value(action, tf.constant(self.low), tf.constant(self.high))

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Standard normal numbers."""
        return rng.standard_normal((*shape, self.num_uniforms), dtype=np.float32)

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """[E, D]: the means plus the noise times the deviations."""
        mean, log_std = np.split(params, 2, axis=-1)
        return mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * noise

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E, D] means."""
        return params[:, : params.shape[-1] // 2]

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """Clipped to the bounds."""
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        return np.minimum(np.maximum(action, low), high)


class SquashedGaussian(NamedTuple):
    """Normal numbers [B, D] that a tanh brings into the bounds.

    Raw actions are the numbers before the tanh, so nothing is lost at the bounds; densities are
    those of the numbers that the environment gets.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def _before(self) -> Gaussian:
        return Gaussian(self.low, self.high)

    @property
    def num_params(self) -> int:
        """A mean and a log standard deviation for each number, before the tanh."""
        return 2 * len(self.low)

    @property
    def num_scales(self) -> int:
        """The log standard deviations."""
        return len(self.low)

    @property
    def num_uniforms(self) -> int:
        """One draw for each number."""
        return len(self.low)

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Refuses: continuous actions have no mask."""
        return self._before.mask(params, mask)

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """Standard normal numbers."""
        return standard_normal(uniforms)

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """[B, D] numbers before the tanh."""
        return self._before.sample(params, noise)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B, D] medians: the means before the tanh."""
        return self._before.mode(params)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log-density at `to_env(action)`: the normal one minus the log of the slope."""
        slope = tf.reduce_sum(self._log_slope(action), axis=-1)
        return self._before.log_prob(params, action) - slope

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] nats: the normal entropy plus the mean log slope, by Gauss-Hermite quadrature."""
        mean, log_std = mean_and_log_std(params)
        points, weights = np.polynomial.hermite_e.hermegauss(HERMITE_POINTS)
        weights = tf.constant(weights / math.sqrt(2.0 * math.pi), tf.float32)
        at = mean[..., tf.newaxis] + tf.exp(log_std)[..., tf.newaxis] * tf.constant(
            points, tf.float32
        )
        half = tf.math.log(self._half_range())
        slope = tf.reduce_sum(log_tanh_slope(at) * weights, axis=-1) + half
        return self._before.entropy(params) + tf.reduce_sum(slope, axis=-1)

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """Within the bounds."""
        return tf.constant(self.low) + (tf.tanh(action) + 1.0) * self._half_range()

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Standard normal numbers."""
        return self._before.host_noise(rng, shape)

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """[E, D] numbers before the tanh."""
        return self._before.host_sample(params, noise)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E, D] means before the tanh."""
        return self._before.host_mode(params)

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """Within the bounds."""
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        return low + (np.tanh(action) + 1.0) * (0.5 * (high - low))

    def _half_range(self) -> tf.Tensor:
        return 0.5 * (tf.constant(self.high) - tf.constant(self.low))

    def _log_slope(self, action: tf.Tensor) -> tf.Tensor:
        return log_tanh_slope(action) + tf.math.log(self._half_range())


def mean_and_log_std(params: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[B, D] each, from [B, 2 D]."""
    mean, log_std = tf.split(params, 2, axis=-1)
    return mean, tf.clip_by_value(log_std, *LOG_STD_RANGE)


def standard_normal(uniforms: tf.Tensor) -> tf.Tensor:
    """Standard normal numbers from uniform ones in [0, 1) in steps of 2**-24."""
    centred = 2.0 * uniforms - (1.0 - 0.5**24)  # exact: adding first would round the last one to 1
    # One step less at the top, where erfinv outside XLA rounds its argument to 1 as well.
    return math.sqrt(2.0) * tf.math.erfinv(tf.minimum(centred, 1.0 - 0.5**23))


def log_tanh_slope(x: tf.Tensor) -> tf.Tensor:
    """log(1 - tanh(x)**2) without cancellation."""
    return 2.0 * (math.log(2.0) - x - tf.nn.softplus(-2.0 * x))


def make_distribution(action: ActionSpace, bounds: str) -> Distribution:
    """The distribution over an environment's actions.

    Args:
        action: What the environment accepts.
        bounds: How continuous actions are kept in their bounds, "clip" or "squash".

    Raises:
        ValueError: Squashing into infinite bounds.
    """
    if isinstance(action, Discrete):
        return Categorical(action.count)
    if isinstance(action, MultiDiscrete):
        return MultiCategorical(tuple(action.counts))
    if bounds == "clip":
        return Gaussian(action.low, action.high)
    if not all(map(math.isfinite, (*action.low, *action.high))):
        raise ValueError(
            f"action_bounds is 'squash', and the actions reach from {list(action.low)} to "
            f"{list(action.high)}: a squashed Gaussian needs finite bounds. Set "
            "action_bounds='clip', or wrap the environment in gymnasium.wrappers.RescaleAction."
        )
    return SquashedGaussian(action.low, action.high)
