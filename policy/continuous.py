"""Distributions over continuous actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import Box
from kytolly.policy.distributions import Distribution

LOG_STD_RANGE = (-20.0, 2.0)
HERMITE_POINTS = 20
FARTHEST = 1e6  # a bound beyond it means that there is none
NEAREST = 1.0 - 0.5**24  # to a bound of -1 or 1, in float32


class Gaussian(Distribution):
    """Independent normal numbers [B, D] from means, then log standard deviations.

    The environment gets them clipped to its bounds; the probability is that of the unclipped
    number, as in Stable-Baselines3 and CleanRL.
    """

    entropy_coef = 0.0  # their deviation explores, and is learned

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        self.low, self.high = np.array(low, np.float32), np.array(high, np.float32)
        self.num_scales = self.num_uniforms = len(low)
        self.num_params = 2 * len(low)

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Refuses: continuous actions have no mask."""
        raise ValueError("an action mask was found, and the actions are a Box: remove the mask.")

    def noise(self, uniform: tf.Tensor) -> tf.Tensor:
        """Standard normal numbers, through the inverse of the normal distribution."""
        return standard_normal(uniform)

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Standard normal numbers."""
        return rng.standard_normal((*shape, self.num_uniforms), dtype=np.float32)

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """[B, D]: the means plus the noise times the deviations."""
        mean, log_std = mean_and_log_std(params)
        return mean + tf.exp(log_std) * noise

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """[E, D]: the same."""
        mean, log_std = np.split(params, 2, axis=-1)
        return mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * noise

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B, D] means."""
        return params[:, : self.num_scales]

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E, D] means."""
        return params[:, : self.num_scales]

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
        return tf.clip_by_value(action, self.low, self.high)

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """Clipped to the bounds."""
        return np.minimum(np.maximum(action, self.low), self.high)

    def host_from_env(self, action: np.ndarray) -> np.ndarray:
        """The actions themselves: what was drawn beyond a bound is not known."""
        return np.asarray(action, np.float32)


class ScaledGaussian(Gaussian):
    """Normal numbers [B, D] of which -1 and 1 stand for the bounds, so that no unit matters.

    The environment gets them scaled, then clipped; densities are those of the scaled numbers. One
    with a bound beyond `FARTHEST` stays as it is.
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        super().__init__(low, high)
        bounded = np.maximum(abs(self.low), abs(self.high)) <= FARTHEST
        lowest, highest = np.where(bounded, self.low, -1.0), np.where(bounded, self.high, 1.0)
        self.centre = (0.5 * (lowest + highest)).astype(np.float32)
        self.half_range = (0.5 * (highest - lowest)).astype(np.float32)
        self.log_volume = float(np.log(self.half_range).sum())

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log-density at the scaled action."""
        return super().log_prob(params, action) - self.log_volume

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] nats, of the scaled numbers."""
        return super().entropy(params) + self.log_volume

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """Scaled, and clipped to the bounds."""
        return super().to_env(self.centre + self.half_range * action)

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """Scaled, and clipped to the bounds."""
        return super().host_to_env(self.centre + self.half_range * action)

    def host_from_env(self, action: np.ndarray) -> np.ndarray:
        """The numbers before scaling; what was drawn beyond a bound is not known."""
        return ((np.asarray(action, np.float64) - self.centre) / self.half_range).astype(np.float32)


class SquashedGaussian(Gaussian):
    """Normal numbers [B, D] that a tanh brings into the bounds.

    Raw actions are the numbers before the tanh, so nothing is lost at the bounds; densities are
    those of the numbers that the environment gets. The mode is that before the tanh: a median.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C.
    """

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        super().__init__(low, high)
        self.half_range = 0.5 * (self.high - self.low)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log-density at `to_env(action)`: the normal one minus the log of the slope."""
        slope = log_tanh_slope(action) + tf.math.log(self.half_range)
        return super().log_prob(params, action) - tf.reduce_sum(slope, axis=-1)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] nats: the normal entropy plus the mean log slope, by Gauss-Hermite quadrature."""
        mean, log_std = (part[..., tf.newaxis] for part in mean_and_log_std(params))
        points, weights = np.polynomial.hermite_e.hermegauss(HERMITE_POINTS)
        weights = tf.constant(weights / math.sqrt(2.0 * math.pi), tf.float32)
        slope = log_tanh_slope(mean + tf.exp(log_std) * tf.constant(points, tf.float32))
        slope = tf.reduce_sum(slope * weights, axis=-1) + tf.math.log(self.half_range)
        return super().entropy(params) + tf.reduce_sum(slope, axis=-1)

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """Within the bounds."""
        return (tf.tanh(action) + 1.0) * self.half_range + self.low

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """Within the bounds."""
        return self.low + (np.tanh(action) + 1.0) * self.half_range

    def host_from_env(self, action: np.ndarray) -> np.ndarray:
        """The numbers before the tanh; one at a bound counts as the nearest within."""
        inside = (np.asarray(action, np.float64) - self.low) / self.half_range - 1.0
        return np.arctanh(np.clip(inside, -NEAREST, NEAREST)).astype(np.float32)


def mean_and_log_std(params: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[B, D] each, from [B, 2 D]."""
    mean, log_std = tf.split(params, 2, axis=-1)
    return mean, bounded_log_std(log_std)


@tf.custom_gradient
def bounded_log_std(log_std: tf.Tensor) -> Any:
    """Clipped to `LOG_STD_RANGE`; beyond it only a gradient that leads back passes."""
    low, high = LOG_STD_RANGE

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        passes = ((log_std <= high) | (upstream > 0.0)) & ((log_std >= low) | (upstream < 0.0))
        return tf.where(passes, upstream, 0.0)

    return tf.clip_by_value(log_std, low, high), gradient


def standard_normal(uniform: tf.Tensor) -> tf.Tensor:
    """Standard normal numbers from uniform ones in [0, 1) in steps of 2**-24."""
    centred = 2.0 * uniform - (1.0 - 0.5**24)  # exact: adding first would round the last one to 1
    # One step less at the top, where erfinv outside XLA rounds its argument to 1 as well.
    return math.sqrt(2.0) * tf.math.erfinv(tf.minimum(centred, 1.0 - 0.5**23))


def log_tanh_slope(x: tf.Tensor) -> tf.Tensor:
    """log(1 - tanh(x)**2) without cancellation."""
    return 2.0 * (math.log(2.0) - x - tf.nn.softplus(-2.0 * x))


def make_gaussian(action: Box, bounds: str) -> Gaussian:
    """The distribution over continuous actions, in their bounds by "scale", "clip" or "squash".

    Raises:
        ValueError: Squashing into infinite bounds.
    """
    if bounds != "squash":
        kind = ScaledGaussian if bounds == "scale" else Gaussian
        return kind(action.low, action.high)
    if not all(map(math.isfinite, (*action.low, *action.high))):
        raise ValueError(
            f"action_bounds is 'squash', and the actions reach from {list(action.low)} to "
            f"{list(action.high)}: a squashed Gaussian needs finite bounds. Set "
            "action_bounds='scale', or wrap the environment in gymnasium.wrappers.RescaleAction."
        )
    return SquashedGaussian(action.low, action.high)
