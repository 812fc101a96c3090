"""Greedy actions from outside a compiled program."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from model.numpy_forward import numpy_forward


class GreedyActor:
    """The best action of a network: in NumPy where the network allows it.

    The NumPy twin keeps a copy of the weights, brought up to date by `refresh` or `take`; where
    there is none, every call goes through TensorFlow with the weights as they are.

    Args:
        network: Built Keras model [B, *obs] -> [B, A].
        obs_spec: Shape and dtype of one observation.
    """

    def __init__(self, network: keras.Model, obs_spec: tf.TensorSpec):
        self.network, self.obs_spec = network, obs_spec
        self.shapes = [tuple(weight.shape) for weight in network.weights]
        self.twin = numpy_forward(network, tuple(obs_spec.shape))
        batch = tf.TensorSpec([None, *obs_spec.shape], obs_spec.dtype)
        self._values = tf.function(lambda obs: network(obs), input_signature=[batch])

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """[E] actions for [E, *obs]."""
        values = self.q_values(obs) if self.twin is None else self.twin(obs)
        return np.argmax(values, axis=-1)

    def q_values(self, obs: np.ndarray) -> np.ndarray:
        """[E, A] action values through TensorFlow, with the weights as they are."""
        return self._values(np.asarray(obs, self.obs_spec.dtype.as_numpy_dtype)).numpy()

    def refresh(self) -> None:
        """Copy the network's weights into the twin."""
        if self.twin is not None:
            self.twin.weights = self.network.get_weights()

    def take(self, packed: np.ndarray) -> None:
        """Give the twin the weights that lie one after the other in `packed` [P]."""
        if self.twin is None:
            return
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        parts = zip(np.split(packed, ends), self.shapes, strict=True)
        self.twin.weights = [part.reshape(shape) for part, shape in parts]
