"""Actions outside a compiled program: in NumPy where the network allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.exploration import correlated
from kytolly.environment.spec import ACTION_MASK
from kytolly.model.numpy_forward import numpy_forward
from kytolly.policy.distributions import (
    LOG_STD_RANGE,
    MASKED_LOGIT,
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
)
from kytolly.policy.flat_weights import laid_end_to_end
from kytolly.policy.ppo import without_mask


class HostActor:
    """The best actions of a network, and the network outputs that they are picked from.

    The NumPy twin keeps a copy of the weights, brought up to date by `refresh` or `take`; where
    there is none, every call goes through TensorFlow with the weights as they are.

    Args:
        network: Built Keras model whose output, or first output, is [B, P].
        obs_spec: Shape and dtype of one observation, or a dict of them.
        greedy: Function from outputs [E, P], masked, to actions [E, ...].
    """

    def __init__(self, network: keras.Model, obs_spec: Any, greedy: Callable[[Any], np.ndarray]):
        self.network, self.obs_spec, self.greedy = network, obs_spec, greedy
        self.shapes = [tuple(weight.shape) for weight in network.weights]
        seen = without_mask(obs_spec)
        self.twin = numpy_forward(network, seen)
        batch = tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype), seen)
        self._network = tf.function(
            lambda obs: tf.cast(tf.nest.flatten(network(obs))[0], tf.float32),
            input_signature=[batch],
        )

    def __call__(self, obs: Any) -> np.ndarray:
        """[E, ...] actions for [E, *obs]."""
        return self.greedy(self.outputs(obs))

    def fresh(self, obs: Any) -> np.ndarray:
        """[E, ...] actions, with the weights as they are."""
        return self.greedy(masked(self.network_outputs(obs), obs))

    def outputs(self, obs: Any) -> np.ndarray:
        """[E, P] outputs, in which no action that a mask forbids is likely."""
        if self.twin is None:
            return masked(self.network_outputs(obs), obs)
        return masked(self.twin(without_mask(obs)), obs)

    def network_outputs(self, obs: Any) -> np.ndarray:
        """[E, P] outputs through TensorFlow, with the weights as they are."""
        typed = tf.nest.map_structure(
            lambda spec, part: np.asarray(part, spec.dtype.as_numpy_dtype),
            without_mask(self.obs_spec),
            without_mask(obs),
        )
        return self._network(typed).numpy()

    def refresh(self) -> None:
        """Copy the network's weights into the twin."""
        if self.twin is not None:
            self.twin.weights = self.network.get_weights()

    def packed(self) -> tf.Tensor:
        """[W] float32 for `take`: all weights end to end; [0] where there is no twin.

        One tensor is one copy to the host, where a variable each would be a call each.
        """
        return tf.zeros([0]) if self.twin is None else laid_end_to_end(self.network.weights)

    def take(self, packed: np.ndarray) -> None:
        """Give the twin the weights [W] that `packed` laid end to end."""
        if self.twin is None:
            return
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        parts = zip(np.split(packed, ends), self.shapes, strict=True)
        self.twin.weights = [part.reshape(shape) for part, shape in parts]


def masked(outputs: np.ndarray, obs: Any) -> np.ndarray:
    """Outputs [E, P] with those of forbidden actions as low as policy.distributions has them."""
    if isinstance(obs, dict) and ACTION_MASK in obs:
        return np.where(obs[ACTION_MASK], outputs, np.float32(MASKED_LOGIT))
    return outputs


def best_values(outputs: np.ndarray) -> np.ndarray:
    """[E] actions with the highest of [E, A] values."""
    return np.argmax(outputs, axis=-1)


def mode(distribution: Distribution, params: np.ndarray) -> np.ndarray:
    """The most likely raw actions for [E, P]; `Distribution.mode` in NumPy."""
    if isinstance(distribution, Categorical):
        return np.argmax(params, axis=-1)
    if isinstance(distribution, MultiCategorical):
        kinds = np.split(params, np.cumsum(distribution.counts)[:-1], axis=-1)
        return np.stack([np.argmax(kind, axis=-1) for kind in kinds], axis=-1)
    return params[:, : params.shape[-1] // 2]


def drawn_noise(
    distribution: Distribution,
    shape: tuple[int, int],
    rng: np.random.Generator,
    correlation: float = 0.0,
) -> np.ndarray:
    """What `sampled` needs for [T, E] actions: uniform or standard normal numbers [T, E, N]."""
    size = (*shape, distribution.num_uniforms)
    if isinstance(distribution, (Categorical, MultiCategorical)):
        return rng.random(size, dtype=np.float32)
    return correlated(rng.standard_normal(size, dtype=np.float32), correlation)


def sampled(distribution: Distribution, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Raw actions for [E, P] and [E, N] of `drawn_noise`; `Distribution.sample` in NumPy."""
    if isinstance(distribution, Categorical):
        return _chosen(params, noise)
    if isinstance(distribution, MultiCategorical):
        kinds = np.split(params, np.cumsum(distribution.counts)[:-1], axis=-1)
        chosen = [_chosen(kind, noise[:, d : d + 1]) for d, kind in enumerate(kinds)]
        return np.stack(chosen, axis=-1)
    mean, log_std = np.split(params, 2, axis=-1)
    return mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * noise


def to_env(distribution: Distribution, action: np.ndarray) -> np.ndarray:
    """What the environment gets for raw actions; `Distribution.to_env` in NumPy."""
    if isinstance(distribution, (Categorical, MultiCategorical)):
        return action
    low, high = (np.array(bound, np.float32) for bound in (distribution.low, distribution.high))
    if isinstance(distribution, Gaussian):
        return np.minimum(np.maximum(action, low), high)
    return low + (np.tanh(action) + 1.0) * (0.5 * (high - low))


def _chosen(logits: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """[E] choices by the inverse of the cumulative distribution; none of probability 0."""
    below = np.cumsum(np.exp(logits - logits.max(axis=-1, keepdims=True)), axis=-1)
    total = below[:, -1:]
    return ((below <= uniform * total) & (below < total)).sum(axis=-1)
