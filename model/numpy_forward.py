"""A network's forward pass in NumPy, for acting on the host.

One observation through `model(obs)` costs 3 ms, through a `tf.function` 0.5 ms, and here about
10 microseconds: an environment on the host waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from kytolly.model.actor_critic_mlp import ActorCriticMLP
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP, FewUnits
from kytolly.model.normalization import RunningNormalization

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0.0),
}


class NumpyForward:
    """Outputs [E, P] of observations [E, *obs], from a copy of a network's weights.

    Args:
        steps: (activation, kernel index, bias index) for each dense layer in turn; indices into
            `network.weights`.
        dueling: The last two steps are the value and the advantage stream.
        normalizers: (mean index, variance index, layer) by the name of the entry of a Dict
            observation, "" for an array.
        scales: Index of outputs that no observation changes, which follow the others.
    """

    def __init__(
        self,
        steps: list[tuple[Callable, int, int | None]],
        dueling: bool = False,
        normalizers: dict[str, tuple[int, int, RunningNormalization]] | None = None,
        scales: int | None = None,
    ):
        self.steps, self.dueling, self.scales = steps, dueling, scales
        self.normalizers = normalizers or {}
        self.weights: list[np.ndarray] = []

    def __call__(self, obs: Any) -> np.ndarray:
        """[E, P] float32."""
        features = self._features(obs)
        streams = 2 if self.dueling else 0
        for step in self.steps[: len(self.steps) - streams]:
            features = self._dense(features, step)
        if self.scales is not None:
            scales = np.broadcast_to(
                self.weights[self.scales], (len(features), len(self.weights[self.scales]))
            )
            return np.concatenate([features, scales], axis=-1)
        if not self.dueling:
            return features
        value, advantage = (self._dense(features, step) for step in self.steps[-2:])
        return value + advantage - advantage.mean(axis=-1, keepdims=True)

    def _features(self, obs: Any) -> np.ndarray:
        if not isinstance(obs, dict):
            return self._entry("", obs)
        parts = [self._entry(name, part) for name, part in sorted(obs.items())]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def _entry(self, name: str, part: np.ndarray) -> np.ndarray:
        part = part.astype(np.float32, copy=False)
        if name in self.normalizers:
            mean, variance, layer = self.normalizers[name]
            part = (part - self.weights[mean]) / np.sqrt(self.weights[variance] + layer.epsilon)
            part = np.clip(part, -layer.clip, layer.clip)
        return part.reshape(len(part), -1)

    def _dense(self, features: np.ndarray, step: tuple[Callable, int, int | None]) -> np.ndarray:
        activation, kernel, bias = step
        features = features @ self.weights[kernel]
        if bias is not None:
            features += self.weights[bias]
        return activation(features)


def numpy_forward(network: keras.Model, obs_spec: Any) -> NumpyForward | None:
    """The network's NumPy twin, or None where it has layers that we do not know.

    The twin is checked against the network on random observations before it is trusted.

    Args:
        network: Built Keras model whose output, or first output, is [B, P].
        obs_spec: Shape and dtype of one observation, or a dict of them.
    """
    dense = _dense_layers(network)
    if dense is None or any(layer.activation.__name__ not in ACTIVATIONS for layer in dense):
        return None
    index = {id(weight): position for position, weight in enumerate(network.weights)}
    steps = [
        (
            ACTIVATIONS[layer.activation.__name__],
            index[id(layer.kernel)],
            index[id(layer.bias)] if layer.use_bias else None,
        )
        for layer in dense
    ]
    twin = NumpyForward(steps, type(network) is DuelingMLP)
    if type(network) is ActorCriticMLP:
        twin.normalizers = {
            name: (index[id(layer.mean)], index[id(layer.variance)], layer)
            for name, layer in network.features.normalizers.items()
        }
        twin.scales = index[id(network.scales)] if network.free_scales else None
    twin.weights = [np.asarray(weight) for weight in network.get_weights()]
    return twin if _agrees(twin, network, obs_spec) else None


def _agrees(twin: NumpyForward, network: keras.Model, obs_spec: Any) -> bool:
    rng = np.random.default_rng(0)

    def drawn(spec):
        return rng.normal(size=(8, *spec.shape)).astype(spec.dtype.as_numpy_dtype)

    obs = keras.tree.map_structure(drawn, obs_spec)
    expected = keras.tree.flatten(network(obs))[0]
    return np.allclose(twin(obs), np.asarray(expected), rtol=1e-3, atol=1e-3)


def _dense_layers(network: keras.Model) -> list[keras.layers.Dense] | None:
    if network.dtype_policy.compute_dtype != "float32":
        return None
    if type(network) is DQNMLP and network.torso is None:
        return [*network.hidden.dense, network.q_values]
    if type(network) is DuelingMLP and network.torso is None:
        return [*network.hidden.dense, network.value, network.advantage]
    if type(network) is ActorCriticMLP and not network.features.images:
        return [*network.policy_torso, network.policy_head]
    if not isinstance(network, keras.Sequential):
        return None
    passing = (keras.layers.Flatten, keras.layers.Dropout, keras.layers.InputLayer)
    layers = [layer for layer in network.layers if not isinstance(layer, passing)]
    return (
        layers if all(type(layer) in (keras.layers.Dense, FewUnits) for layer in layers) else None
    )
