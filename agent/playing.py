"""Greedy actions and action values for whoever has an agent: nothing here trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.environment.mask import ACTION_MASK, without_mask
from kytolly.policy.base import greedy_action


class Player:
    """What `KytollyAgent.act` and `KytollyAgent.q_values` do.

    Args:
        network: Keras model whose output, or first output, is [B, P].
        distribution: Reads the params.
        obs_spec: Shape and dtype of one observation, or a dict of them.
    """

    def __init__(self, network: Any, distribution: Any, obs_spec: Any):
        self.obs_spec = obs_spec
        batch = tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype), obs_spec)
        self._greedy = tf.function(
            lambda obs: greedy_action(network, distribution, obs),
            autograph=False,
            input_signature=[batch],
        )
        self._params = tf.function(
            lambda obs: tf.cast(tf.nest.flatten(network(obs))[0], tf.float32),
            autograph=False,
            input_signature=[without_mask(batch)],
        )

    def act(self, observation: Any) -> Any:
        """Greedy action for one observation, or for a batch of them.

        Args:
            observation: [*obs] or [B, *obs]; for Dict observations a dict of such arrays.

        Returns:
            For one observation what an environment's `step` takes: an int, or an array [D]. For a
            batch an array with `B` rows.
        """
        obs = self._arrays(observation)
        parts, specs = tf.nest.flatten(obs), tf.nest.flatten(self.obs_spec)
        found, expected = [part.shape for part in parts], [tuple(spec.shape) for spec in specs]
        if found == expected:
            one = self._greedy(tf.nest.map_structure(lambda part: part[np.newaxis], obs))[0].numpy()
            return int(one) if one.ndim == 0 else one
        if [shape[1:] for shape in found] == expected:
            return self._greedy(obs).numpy()
        raise ValueError(
            f"act() got an observation of shape {', '.join(map(str, found))}, expected "
            f"{', '.join(map(str, expected))} or a batch of them, with the batch axis first."
        )

    def params(self, observation: Any) -> np.ndarray:
        """[B, P] what the network says of a batch, without a mask."""
        return self._params(without_mask(self._arrays(observation))).numpy()

    def _arrays(self, observation: Any) -> Any:
        """The observation as arrays of the spec's dtypes, in the order of its names."""
        spec = self.obs_spec
        if not isinstance(spec, dict):
            return np.asarray(observation, spec.dtype.as_numpy_dtype)
        missing = set(spec) - set(observation) if isinstance(observation, Mapping) else set(spec)
        if missing:
            raise ValueError(
                f"act() got an observation without {', '.join(sorted(missing))}, expected a dict "
                f"with {', '.join(spec)}."
            )
        obs = {n: np.asarray(observation[n], s.dtype.as_numpy_dtype) for n, s in spec.items()}
        if ACTION_MASK in obs and not obs[ACTION_MASK].any(axis=-1).all():
            raise ValueError(
                "act() got an action_mask that forbids everything, expected one that allows an "
                "action at least."
            )
        return obs
