"""Distributions over actions: pure functions of a network's outputs."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from kytolly.environment.mask import MASKED_LOGIT
from kytolly.policy.action_values import take_action
from kytolly.policy.few_columns import log_softmax, row_argmax, row_max, row_min, row_sum

UNROLLED_CHOICES = 8  # up to here adding column by column fuses and is faster than a product
ONE_PRODUCT = 512  # choices; with more, sums of blocks take less than a product of that width


class Distribution:
    """Reads the `P` params in a row of network outputs, and holds no tensors.

    A *raw* action is what the distribution draws and what `log_prob` evaluates; `to_env` turns it
    into what the environment accepts. The `host_` methods are the same in NumPy, for acting on the
    host. What is defined here suits discrete actions.

    Attributes:
        num_params: `P`.
        num_uniforms: Random numbers that one action takes, `N`.
        num_scales: How many of the params, the last ones, are logarithms of scales.
        entropy_coef: Weight of PPO's entropy bonus where none is given.
    """

    num_params: int
    num_uniforms: int
    num_scales: int = 0
    entropy_coef: float = 0.02

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Params under which every action that [B, P] bool `mask` forbids has probability 0."""
        return tf.where(mask, params, MASKED_LOGIT)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """The most likely raw actions [B, ...]."""
        raise NotImplementedError

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Raw actions [B, ...] for [B, N] noise."""
        raise NotImplementedError

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log-probability, or log-density, of raw actions."""
        raise NotImplementedError

    def host_probabilities(self, params: np.ndarray) -> np.ndarray:
        """[B, P] probabilities of discrete actions."""
        raise NotImplementedError

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] entropy in nats."""
        raise NotImplementedError

    def noise(self, uniform: tf.Tensor) -> tf.Tensor:
        """The noise [..., N] that `sample` takes, from as many numbers in [0, 1)."""
        return uniform

    def host_noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """[T, E, M] float32 noise that `host_sample` takes for [T, E] actions; here Gumbel noise.

        It is finite: none lifts an action that a mask forbids.
        """
        uniform = rng.random((*shape, self.num_params), dtype=np.float32)
        return -np.log(-np.log(np.maximum(uniform, np.float32(2.0**-25))))

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """`mode` in NumPy."""
        raise NotImplementedError

    def host_sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Raw actions [E, ...] from params [E, P] and [E, M] noise, distributed as by `sample`.

        The largest sum of logit and Gumbel noise is a draw from the softmax. `sample` takes fewer
        random numbers; this is one pass over the logits, where each call into NumPy costs time.

        Source: Maddison et al. 2014, arXiv:1411.0030, section 2.
        """
        return self.host_mode(params + noise)

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """The environment's actions for raw ones."""
        return action

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """`to_env` in NumPy."""
        return action

    def host_from_env(self, action: np.ndarray) -> np.ndarray:
        """The raw actions of which `to_env` gives these; ValueError where it gives no such."""
        raise NotImplementedError


class Categorical(Distribution):
    """One of `num_params` actions from as many logits: raw actions [B] int32."""

    def __init__(self, num_params: int):
        self.num_params, self.num_uniforms = num_params, 1

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Inverts the cumulative distribution; an action of probability 0 is never drawn."""
        weight = tf.exp(params - row_max(params, keepdims=True))
        return choice(weight, running_sums(weight), noise)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B] int32."""
        return row_argmax(params)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E] actions."""
        return params.argmax(axis=-1)

    def host_from_env(self, action: np.ndarray) -> np.ndarray:
        """The actions themselves, if there are such."""
        if action.dtype.kind not in "iu" or not ((action >= 0) & (action < self.num_params)).all():
            raise ValueError(
                f"the action {action.tolist()!s:.100} was found, expected whole numbers from 0 to "
                f"{self.num_params - 1}."
            )
        return action

    def host_probabilities(self, params: np.ndarray) -> np.ndarray:
        """[B, P] the softmax of the logits."""
        weight = np.exp(params - params.max(axis=-1, keepdims=True))
        return weight / weight.sum(axis=-1, keepdims=True)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] log of the softmax at the action."""
        return take_action(log_softmax(params), action)

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] nats; a forbidden action adds exactly 0."""
        log_prob = log_softmax(params)
        return -row_sum(lambda log_prob: tf.exp(log_prob) * log_prob, log_prob)


class MultiCategorical(Distribution):
    """Several independent choices, their logits and masks one after the other: [B, D] int32."""

    def __init__(self, counts: tuple[int, ...]):
        self.counts, self.num_params, self.num_uniforms = counts, sum(counts), len(counts)
        ends = np.cumsum(counts)
        self._parts = [(Categorical(n), slice(e - n, e)) for n, e in zip(counts, ends, strict=True)]

    def sample(self, params: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """[B, D] int32 from [B, D] numbers."""
        columns = tf.split(noise, len(self._parts), axis=-1)
        parts = zip(self._parts, columns, strict=True)
        return tf.stack([one.sample(params[:, at], u) for (one, at), u in parts], axis=-1)

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B, D] int32."""
        return tf.stack([one.mode(params[:, at]) for one, at in self._parts], axis=-1)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """[E, D] actions."""
        return np.stack([one.host_mode(params[:, at]) for one, at in self._parts], axis=-1)

    def host_from_env(self, action: np.ndarray) -> np.ndarray:
        """The actions themselves, if there are such."""
        parts = enumerate(self._parts)
        return np.stack([one.host_from_env(action[..., d]) for d, (one, _) in parts], axis=-1)

    def host_probabilities(self, params: np.ndarray) -> np.ndarray:
        """[B, P] the probabilities of each choice, one choice after the other."""
        parts = [one.host_probabilities(params[:, at]) for one, at in self._parts]
        return np.concatenate(parts, axis=-1)

    def log_prob(self, params: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """[B] sum over the choices."""
        parts = enumerate(self._parts)
        return tf.add_n([one.log_prob(params[:, at], action[:, d]) for d, (one, at) in parts])

    def entropy(self, params: tf.Tensor) -> tf.Tensor:
        """[B] sum over the choices."""
        return tf.add_n([one.entropy(params[:, at]) for one, at in self._parts])


def running_sums(weight: tf.Tensor) -> tf.Tensor:
    """[B, A] running sums along the last axis; with many actions they may not rise everywhere.

    A product with a triangle of ones rounds each column in its own way, and differently on each
    processor. `choice` does not rely on the order of neighbors.
    """
    count = int(weight.shape[-1])
    if count > ONE_PRODUCT:
        width = math.isqrt(count - 1) + 1  # of a block, and the number of blocks
        padded = tf.pad(weight, [[0, 0], [0, width * width - count]])
        sums = tf.reshape(running_sums(tf.reshape(padded, [-1, width])), [-1, width, width])
        before = tf.pad(running_sums(sums[..., -1])[:, :-1], [[0, 0], [1, 0]])
        return tf.reshape(sums + before[..., tf.newaxis], [-1, width * width])[:, :count]
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
    first = row_min(tf.where(above, index, count))
    last = row_max(tf.where(positive, index, 0))
    return tf.minimum(first, last)  # the share of the total may round up to the total
