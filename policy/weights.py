"""All trainable weights of a network as one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


class FlatWeights(tf.Module):
    """Calls a Keras network with weights that lie end to end in one variable [W].

    Entering a compiled program costs 12 to 30 microseconds for every variable that it assigns,
    and clipping and Adam are a few operations on a vector where they are dozens on single weights.
    The network's own variables are not touched until `publish` copies the vector into them.

    The optimizer must treat every number by itself, as Adam and SGD do; Muon and LAMB do not.

    Args:
        network: Built Keras model.
        optimizer: Keras optimizer, not built yet.
    """

    def __init__(self, network: keras.Model, optimizer: keras.optimizers.Optimizer):
        super().__init__(name="flat_weights")
        self.network, self.optimizer = network, optimizer
        self._weights = tuple(network.trainable_variables)
        self._sizes = [math.prod(weight.shape) for weight in self._weights]
        self._vector = keras.Variable(self.read_network(), dtype="float32", name="weights")
        self.vector: tf.Variable = self._vector.value
        optimizer.build([self._vector])  # else the first update traces twice

    @property
    def size(self) -> int:
        """Number of weights, `W`."""
        return sum(self._sizes)

    def split(self, vector: tf.Tensor | tf.Variable) -> list[tf.Tensor]:
        """The weights of the network, each in its shape, from a vector [W]."""
        parts = tf.split(tf.convert_to_tensor(vector), self._sizes)
        return [
            tf.cast(tf.reshape(part, weight.shape), weight.dtype)
            for part, weight in zip(parts, self._weights, strict=True)
        ]

    def call(self, weights: Sequence[tf.Tensor], obs: Any, **options: Any) -> Any:
        """The network's outputs for [B, *obs] with the weights that `split` returned."""
        mapping = list(zip(self._weights, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = self.network(obs, **options)
        for variable in self.network.non_trainable_variables:  # such as batch statistics
            changed = scope.get_current_value(variable)
            if changed is not None:
                variable.assign(changed)
        return outputs

    def step(self, gradient: tf.Tensor) -> None:
        """One step of the optimizer with a [W] gradient."""
        self.optimizer.apply([gradient], [self._vector])

    def read_network(self) -> tf.Tensor:
        """[W] the weights that the Keras network holds."""
        return concatenate([weight.value for weight in self._weights])

    def pack(self) -> tf.Tensor:
        """[V] all weights end to end in the order of `model.numpy_forward.ordered_weights`."""
        others = [weight.value for weight in self.network.non_trainable_weights]
        return concatenate([self.vector, *others])

    def publish(self) -> None:
        """Copy the vector into the Keras network."""
        for weight, part in zip(self._weights, self.split(self.vector), strict=True):
            weight.assign(part)

    def take(self) -> None:
        """Copy the Keras network into the vector."""
        self.vector.assign(self.read_network())


def concatenate(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """[W] float32 numbers of several tensors, one after another."""
    flat = [tf.reshape(tf.cast(part, tf.float32), [-1]) for part in parts]
    return tf.concat(flat, axis=0) if flat else tf.zeros([0])
