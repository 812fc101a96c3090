"""A network's forward pass in NumPy, for acting on the host.

One observation through `model(obs)` costs 3 ms, through a `tf.function` 0.5 ms, and here about
10 microseconds: an environment on the host waits for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

# Functions of an array and of the array to write to, which may be the same.
ACTIVATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray] | None] = {
    "linear": None,
    "relu": lambda x, out: np.maximum(x, 0.0, out=out),
    "tanh": np.tanh,
    "sigmoid": lambda x, out: np.divide(1.0, 1.0 + np.exp(-x), out),
    "elu": lambda x, out: np.add(np.maximum(x, 0.0), np.expm1(np.minimum(x, 0.0)), out),
    "silu": lambda x, out: np.divide(x, 1.0 + np.exp(-x), out),
    "softplus": lambda x, out: np.logaddexp(x, 0.0, out),
}


class NumpyForward:
    """Params [E, P] of observations [E, *obs], from a copy of a network's weights.

    Args:
        network: Built Keras model.
        dense: Its dense layers in turn.
        dueling: The last two are the value and the advantage stream.
        normalizers: `RunningNormalization` layers by the name of the entry of a Dict observation,
            "" for an array.
        scales: Weight that follows the other params, whatever is observed.
        images: The `NatureCNN` in front, where observations are images.
    """

    def __init__(
        self,
        network: keras.Model,
        dense: list[Any],
        dueling: bool = False,
        normalizers: dict[str, Any] | None = None,
        scales: Any = None,
        images: Any = None,
    ):
        ordered = ordered_weights(network)
        self._shapes = [tuple(weight.shape) for weight in ordered]
        self._ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        place = {id(weight): index for index, weight in enumerate(ordered)}
        self._plan = [
            (
                ACTIVATIONS[layer.activation.__name__],
                place[id(layer.kernel)],
                place.get(id(layer.bias)),
            )
            for layer in dense
        ]
        self._normalizers = {
            name: (place[id(layer.mean)], place[id(layer.variance)], layer)
            for name, layer in (normalizers or {}).items()
        }
        self._dueling, self._scales = dueling, None if scales is None else place[id(scales)]
        self.convolutions: Any = None
        if images is not None:
            from kytolly.model.numpy_convolutions import ConvolutionsForward

            self.convolutions = ConvolutionsForward(images, place)
        self._rows = 1
        self.take(np.concatenate([np.ravel(np.asarray(weight)) for weight in ordered]))

    def take(self, packed: np.ndarray) -> None:
        """Use the weights [W] that lie end to end in the order of `ordered_weights`."""
        parts = zip(np.split(np.asarray(packed, np.float32), self._ends), self._shapes, strict=True)
        self.use([part.reshape(shape) for part, shape in parts], self._rows)

    def use(self, weights: list[np.ndarray], rows: int) -> None:
        """Use weights for so many rows; kernels and biases may be stacks [E, ...], one for each."""
        self.weights = weights
        self._set_rows(rows)

    def __call__(self, obs: Any) -> np.ndarray:
        """[E, P] float32."""
        features = self.hidden_features(obs)
        if self._scales is not None:
            scales = self.weights[self._scales]
            scales = np.broadcast_to(scales, (len(features), len(scales)))
            return np.concatenate([features, scales], axis=-1)
        if not self._dueling:
            return features
        value, advantage = (dense(features, layer) for layer in self._streams)
        return value + advantage - advantage.mean(axis=-1, keepdims=True)

    def hidden_features(self, obs: Any) -> np.ndarray:
        """[E, F] what comes before the two streams, or the last layer's outputs where none do."""
        features = self._features(obs)
        if len(features) != self._rows:
            self._set_rows(len(features))
        for layer in self._torso:
            features = dense(features, layer)
        return features

    def _set_rows(self, rows: int) -> None:
        """Repeat each bias for so many rows: a sum that broadcasts takes three times as long."""
        self._rows = rows
        layers = [self._layer(place, rows) for place in self._plan]
        streams = len(layers) - 2 if self._dueling else len(layers)
        self._torso, self._streams = layers[:streams], layers[streams:]

    def _layer(self, place: Any, rows: int) -> tuple[Any, np.ndarray, np.ndarray | None]:
        activation, kernel, bias = place
        repeated = None if bias is None else np.atleast_2d(self.weights[bias])
        repeated = None if repeated is None else np.repeat(repeated, rows // len(repeated), axis=0)
        return activation, self.weights[kernel], repeated

    def _features(self, obs: Any) -> np.ndarray:
        if self.convolutions is not None:
            return self.convolutions(obs, self.weights)
        if not isinstance(obs, dict):
            return self._entry("", obs)
        parts = [self._entry(name, part) for name, part in sorted(obs.items())]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def _entry(self, name: str, part: np.ndarray) -> np.ndarray:
        if part.dtype != np.float32:
            part = part.astype(np.float32)
        if name in self._normalizers:
            mean, variance, layer = self._normalizers[name]
            part = (part - self.weights[mean]) / np.sqrt(self.weights[variance] + layer.epsilon)
            part = np.clip(part, -layer.clip, layer.clip)
        return part if part.ndim == 2 else part.reshape(len(part), -1)


def dense(features: np.ndarray, layer: tuple[Any, np.ndarray, np.ndarray | None]) -> np.ndarray:
    """[E, units] of features [E, F], by an activation, a kernel and a bias repeated `E` times."""
    activation, kernel, bias = layer
    if kernel.ndim == 2:
        features = features.dot(kernel)
    else:  # a kernel [F, units] for each of some rows in turn
        stacked = features.reshape(len(kernel), -1, features.shape[-1])
        features = (stacked @ kernel).reshape(len(features), -1)
    if bias is not None:
        features += bias
    return features if activation is None else activation(features, features)


def numpy_forward(network: keras.Model, obs_spec: Any) -> NumpyForward | None:
    """The network's NumPy twin, or None where it has layers that we do not know.

    A network says by `numpy_plan()` how it is computed: the arguments of `NumpyForward`, or of the
    subclass `twin` among them; a `keras.Sequential` of dense layers needs
    none. The twin is compared with the network on random observations before it is trusted.

    Args:
        network: Built Keras model whose output, or first output, is [B, P].
        obs_spec: Shape and dtype of one observation, or a dict of them.
    """
    plan = _plan(network)
    if plan is None or network.dtype_policy.compute_dtype != "float32":
        return None
    if any(layer.activation.__name__ not in ACTIVATIONS for layer in plan["dense"]):
        return None
    if any(weight.dtype != "float32" for weight in ordered_weights(network)):
        return None
    plan = dict(plan)
    twin = plan.pop("twin", NumpyForward)(network, **plan)
    return twin if _agrees(twin, network, obs_spec) else None


def ordered_weights(network: keras.Model) -> list[Any]:
    """The weights of a network: those that are trained, then the others."""
    return [*network.trainable_variables, *network.non_trainable_weights]


def _plan(network: keras.Model) -> dict[str, Any] | None:
    if hasattr(network, "numpy_plan"):
        return network.numpy_plan()
    if not isinstance(network, keras.Sequential):
        return None
    passing = (keras.layers.Flatten, keras.layers.Dropout, keras.layers.InputLayer)
    layers = [layer for layer in network.layers if not isinstance(layer, passing)]
    return {"dense": layers} if all(type(x) is keras.layers.Dense for x in layers) else None


def _agrees(twin: NumpyForward, network: keras.Model, obs_spec: Any) -> bool:
    rng = np.random.default_rng(0)
    obs = keras.tree.map_structure(
        lambda spec: rng.normal(size=(8, *spec.shape)).astype(spec.dtype.as_numpy_dtype), obs_spec
    )
    expected = keras.tree.flatten(network(obs))[0]
    return np.allclose(twin(obs), np.asarray(expected), rtol=1e-3, atol=1e-3)
