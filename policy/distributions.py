"""Distributions over discrete actions: pure functions of a network's outputs.

Each class says how the `P` params in a row of network outputs are read, and holds no tensors.
A *raw* action is what the distribution draws and what `log_prob` evaluates; `to_env` turns it into
what the environment accepts. The `host_` methods are the same in NumPy, for acting on the host.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from kytolly.environment.mask import MASKED_LOGIT

UNROLLED_CHOICES = 8  # up to here adding column by column fuses and is faster than a product


class Distribution(Protocol):
    """What a policy needs to know of its actions. Params are [B, P], masked where masks exist."""

    @property
    def num_params(self) -> int:
        """`P`."""
        ...

    @property
    def num_scales(self) -> int:
        """How many of the params, the last ones, are logarithms of scales."""
        ...

    @property
    def num_uniforms(self) -> int:
        """Random numbers that one action takes, `N`."""
        ...

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Params under which every action that [B, A] bool `mask` forbids has probability 0."""
        ...

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """What `sample` needs, [..., N], from as many numbers in [0, 1)."""
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

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """What `host_sample` needs for [T, E] actions: [T, E, M] float32."""
        ...

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Raw actions [E, ...] from params [E, P] and [E, M] noise, distributed as by `sample`."""
        ...

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """`mode` in NumPy."""
        ...

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """`to_env` in NumPy."""
        ...


class Categorical(NamedTuple):
    """One of `num_params` actions from as many logits: raw actions [B] int32."""

    num_params: int
    num_uniforms: int = 1
    num_scales: int = 0

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Logits with those of forbidden actions so low that their probability is exactly 0."""
        return tf.where(mask, params, MASKED_LOGIT)

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """The uniform numbers themselves."""
        return uniforms

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Inverts the cumulative distribution; an action of probability 0 is never drawn."""
        weight = tf.exp(params - tf.reduce_max(params, axis=-1, keepdims=True))
        return choice(weight, running_sums(weight), noise)

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

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Gumbel noise for each action."""
        return gumbel_noise(rng, (*shape, self.num_params))

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """[E] actions: the largest sum of logit and Gumbel noise is a draw from the softmax.

        Source: Maddison et al. 2014, arXiv:1411.0030, section 2. `sample` takes fewer random
        numbers; this is one pass over the logits, where each call into NumPy costs time.
        """
        return (params + noise).argmax(axis=-1)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E] actions."""
        return params.argmax(axis=-1)

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """The action itself."""
        return action


class MultiCategorical(NamedTuple):
    """Several independent choices, their logits one after the other: [B, D] int32."""

    counts: tuple[int, ...]

    @property
    def num_params(self) -> int:
        """Logits in all."""
        return sum(self.counts)

    @property
    def num_scales(self) -> int:
        """None."""
        return 0

    @property
    def num_uniforms(self) -> int:
        """One number for each choice."""
        return len(self.counts)

    def _parts(self, params: tf.Tensor) -> list[tuple[Categorical, tf.Tensor]]:
        logits = tf.split(params, self.counts, axis=-1)
        return [(Categorical(n), part) for n, part in zip(self.counts, logits, strict=True)]

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """The same for each choice; the masks lie one after the other."""
        return tf.where(mask, params, MASKED_LOGIT)

    def noise(self, uniforms: tf.Tensor) -> tf.Tensor:
        """The uniform numbers themselves."""
        return uniforms

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """[B, D] int32 from [B, D] numbers."""
        parts = enumerate(self._parts(params))
        return tf.stack([one.sample(p, noise[:, d : d + 1]) for d, (one, p) in parts], axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B, D] int32."""
        return tf.stack([one.mode(p) for one, p in self._parts(params)], axis=-1)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] sum over the choices."""
        parts = enumerate(self._parts(params))
        return tf.add_n([one.log_prob(p, action[:, d]) for d, (one, p) in parts])

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] sum over the choices."""
        return tf.add_n([one.entropy(p) for one, p in self._parts(params)])

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """The actions themselves."""
        return action

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Gumbel noise for each logit."""
        return gumbel_noise(rng, (*shape, self.num_params))

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """[E, D] actions."""
        return self.host_mode(params + noise)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E, D] actions."""
        logits = np.split(params, np.cumsum(self.counts)[:-1], axis=-1)
        return np.stack([part.argmax(axis=-1) for part in logits], axis=-1)

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """The actions themselves."""
        return action


def running_sums(weight: tf.Tensor) -> tf.Tensor:
    """[B, A] running sums along the last axis; with many actions they may not rise everywhere.

    A product with a triangle of ones rounds each column in its own way, and differently on each
    processor. `choice` does not rely on the order of neighbors.
    """
    count = int(weight.shape[-1])
    if count > UNROLLED_CHOICES:
        return tf.matmul(weight, tf.linalg.band_part(tf.ones([count, count]), 0, -1))
    sums = [weight[:, 0]]
    for action in range(1, count):
        sums.append(sums[-1] + weight[:, action])
    return tf.stack(sums, axis=-1)


def choice(weight: tf.Tensor, sums: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """[B] int32 index of the first sum above a share of the total, among positive weights.

    Whatever rounding did to the sums, an action of weight 0 is never chosen.

    Args:
        weight: [B, A] at least 0, one of each row above.
        sums: [B, A] running sums of the weights.
        uniform: [B, 1] share in [0, 1).
    """
    count = int(weight.shape[-1])
    index, positive = tf.range(count), weight > 0.0
    above = positive & (sums > uniform * sums[:, -1:])
    first = tf.reduce_min(tf.where(above, index, count), axis=-1)
    last = tf.reduce_max(tf.where(positive, index, 0), axis=-1)
    return tf.minimum(first, last)  # the share of the total may round up to the total


def gumbel_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standard Gumbel numbers, float32 and finite: none lifts an action that a mask forbids."""
    uniform = np.maximum(rng.random(shape, dtype=np.float32), np.float32(2.0**-25))
    return -np.log(-np.log(uniform))
