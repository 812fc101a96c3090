"""Action distributions: pure functions of a network's outputs.

Each class says how the `P` numbers of a row of network outputs are read, and holds no tensors.
A *raw* action is what the distribution draws and what `log_prob` prices; `to_env` turns it into
what the environment accepts.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

MASKED_LOGIT = -1e9  # its exponential is exactly 0 in float32
UNROLLED_CHOICES = 8  # up to here adding column by column fuses and is faster than a product
LOG_STD_RANGE = (-20.0, 2.0)
HERMITE_POINTS = 20


class Distribution(Protocol):
    """What a policy needs to know of its actions. Params are [B, P], masked where masks exist."""

    @property
    def num_params(self) -> int:
        """`P`."""
        ...

    @property
    def num_uniforms(self) -> int:
        """Draws that one action takes, `N`."""
        ...

    def masked(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Params under which every action that [B, A] bool `mask` forbids has probability 0."""
        ...

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """What `sample` needs, [..., N], from as many draws in [0, 1)."""
        ...

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Raw actions from params and [B, N] noise."""
        ...

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """The most likely raw actions."""
        ...

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log-probability, or log-density, of raw actions."""
        ...

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] entropy in nats."""
        ...

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """What the environment gets for raw actions."""
        ...


class Categorical(NamedTuple):
    """One of `num_params` actions from as many logits: raw actions [B] int32."""

    num_params: int
    num_uniforms: int = 1

    def masked(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Logits with those of forbidden actions so low that their probability is exactly 0."""
        return tf.where(mask, params, MASKED_LOGIT)

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """The draws themselves."""
        return uniforms

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Inverts the cumulative distribution; an action of probability 0 is never drawn."""
        weight = tf.exp(params - tf.reduce_max(params, axis=-1, keepdims=True))
        below = cumulated(weight)
        total = below[:, -1:]
        # Counts only what lies below the total, so that rounding cannot lead past the last action.
        passed = (below <= noise * total) & (below < total)
        return tf.reduce_sum(tf.cast(passed, tf.int32), axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B] int32."""
        return tf.argmax(params, axis=-1, output_type=tf.int32)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log of the softmax at the action."""
        taken = tf.one_hot(action, self.num_params)  # a gather's gradient is a scatter: slower
        return tf.reduce_sum(tf.nn.log_softmax(params) * taken, axis=-1)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] nats; a forbidden action adds exactly 0."""
        log_prob = tf.nn.log_softmax(params)
        return -tf.reduce_sum(tf.exp(log_prob) * log_prob, axis=-1)

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """The action itself."""
        return action


class MultiCategorical(NamedTuple):
    """One action of each kind, independently, from logits one after the other: [B, D] int32."""

    counts: tuple[int, ...]

    @property
    def num_params(self) -> int:
        """Logits in all."""
        return sum(self.counts)

    @property
    def num_uniforms(self) -> int:
        """One draw for each kind."""
        return len(self.counts)

    def _parts(self, params: tf.Tensor) -> list[tuple[Categorical, tf.Tensor]]:
        logits = tf.split(params, self.counts, axis=-1)
        return [(Categorical(n), part) for n, part in zip(self.counts, logits, strict=True)]

    def masked(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """As for one kind; the masks of the kinds lie one after the other."""
        return tf.where(mask, params, MASKED_LOGIT)

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """The draws themselves."""
        return uniforms

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """[B, D] int32 from [B, D] draws."""
        parts = self._parts(params)
        drawn = [kind.sample(p, noise[:, d : d + 1]) for d, (kind, p) in enumerate(parts)]
        return tf.stack(drawn, axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B, D] int32."""
        return tf.stack([kind.mode(p) for kind, p in self._parts(params)], axis=-1)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] sum over kinds."""
        parts = self._parts(params)
        return tf.add_n([kind.log_prob(p, action[:, d]) for d, (kind, p) in enumerate(parts)])

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] sum over kinds."""
        return tf.add_n([kind.entropy(p) for kind, p in self._parts(params)])

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """The actions themselves."""
        return action


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
    def num_uniforms(self) -> int:
        """One draw for each number."""
        return len(self.low)

    def masked(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Refuses: real numbers have no mask."""
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
    def num_uniforms(self) -> int:
        """One draw for each number."""
        return len(self.low)

    def masked(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Refuses: real numbers have no mask."""
        return self._before.masked(params, mask)

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

    def _half_range(self) -> tf.Tensor:
        return 0.5 * (tf.constant(self.high) - tf.constant(self.low))

    def _log_slope(self, action: tf.Tensor) -> tf.Tensor:
        return log_tanh_slope(action) + tf.math.log(self._half_range())


def cumulated(weight: tf.Tensor) -> tf.Tensor:
    """[B, A] running sums along the last axis."""
    count = int(weight.shape[-1])
    if count > UNROLLED_CHOICES:
        return tf.matmul(weight, tf.linalg.band_part(tf.ones([count, count]), 0, -1))
    sums = [weight[:, 0]]
    for choice in range(1, count):
        sums.append(sums[-1] + weight[:, choice])
    return tf.stack(sums, axis=-1)


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
