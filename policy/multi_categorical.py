"""Several discrete actions at once."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from kytolly.policy.distributions import Categorical, Distribution


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
