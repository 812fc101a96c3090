"""Action values from layers that are normalized before each ReLU, as PQN learns them."""

from __future__ import annotations

import itertools
import math

import keras
import numpy as np

from kytolly.model.dqn_mlp import DQNMLP, HiddenLayers
from kytolly.model.nature_cnn import GridCNN
from kytolly.model.numpy_forward import NumpyForward, dense, ordered_weights
from kytolly.model.q_networks import make_q_network, make_torso

EPSILON = 1e-6  # of the reference, flax; Keras's 1e-3 weakens the norm of faint inputs


@keras.saving.register_keras_serializable(package="kytolly")
class NormalizedLayers(HiddenLayers):
    """Dense layers, each followed by a layer norm and a ReLU: [B, *obs] -> [B, units]."""

    def __init__(self, hidden_units=(128, 128), **kwargs):
        super().__init__(hidden_units, **kwargs)
        self.norms = []

    def build(self, input_shape):
        width = math.prod(input_shape[1:])
        for units in self.hidden_units:
            self.dense.append(keras.layers.Dense(units, kernel_initializer="he_normal"))
            self.dense[-1].build((None, width))
            self.norms.append(keras.layers.LayerNormalization(epsilon=EPSILON))
            self.norms[-1].build((None, units))
            width = units

    def call(self, obs):
        features = keras.ops.cast(obs, self.compute_dtype)
        features = keras.ops.reshape(features, (-1, math.prod(features.shape[1:])))
        for layer, norm in zip(self.dense, self.norms, strict=True):
            features = keras.ops.relu(norm(layer(features)))
        return features


@keras.saving.register_keras_serializable(package="kytolly")
class NormalizedMLP(DQNMLP):
    """Action values of an observation: [B, *obs] -> [B, A] float32.

    Args:
        num_actions, hidden_units, torso: As for `QNetwork`; a torso has norms of its own.

    Source: Gallici et al. 2024, arXiv:2407.04811, section 3; Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(self, num_actions, hidden_units=(128, 128), torso=None, **kwargs):
        hidden = NormalizedLayers(hidden_units)
        super().__init__(num_actions, hidden_units, torso, hidden=hidden, **kwargs)

    def variables_of_old_files(self):
        """Every variable as old checkpoints list them; a shape stands for a dead one.

        There the network had its parent's hidden layers too, which no output needed: built last,
        for as many inputs as they have outputs.
        """
        torso = [] if self.torso is None else self.torso.variables
        widths = (self.hidden_units[-1], *self.hidden_units)
        dead = [shape for pair in itertools.pairwise(widths) for shape in (pair, pair[1:])]
        return [*torso, *dead, *self.q_values.variables, *self.hidden.variables]

    def numpy_plan(self):
        """How `model.numpy_forward` computes the same; None where it cannot."""
        plan = {"dense": [*self.hidden.dense, self.q_values], "norms": self.hidden.norms}
        plan["twin"], torso = NormalizedForward, self.torso
        if isinstance(torso, GridCNN) and torso.norms and not torso.channels_first:
            return {**plan, "grid": torso} if torso.convolutions[0].padding == "valid" else None
        return self.plan_after_torso(plan)


class NormalizedForward(NumpyForward):
    """The NumPy twin: action values [E, A] of observations [E, *obs].

    Args:
        network, dense, arguments: As for `NumpyForward`.
        norms: The layer norms behind all dense layers but the last.
        grid: `GridCNN` with a norm before them; its one convolution is not padded.
    """

    def __init__(self, network, dense, norms, grid=None, **arguments):
        super().__init__(network, dense, **arguments)
        place = {id(weight): index for index, weight in enumerate(ordered_weights(network))}

        def places(norm):
            return place[id(norm.gamma)], place[id(norm.beta)]

        self._norms = [places(norm) for norm in norms]
        self._grid: tuple[int, ...] = ()
        if grid is not None:
            layer = grid.convolutions[0]
            self._grid = place[id(layer.kernel)], place[id(layer.bias)], *places(grid.norms[0])

    def hidden_features(self, obs):
        """As in the parent."""
        features = self._of_grid(obs) if self._grid else self._features(obs)
        if len(features) != self._rows:
            self._set_rows(len(features))
        *hidden, head = self._torso
        for layer, norm in zip(hidden, self._norms, strict=True):
            features = self._norm(dense(features, layer), *norm)
        return dense(features, head)

    def _of_grid(self, obs):
        kernel, bias, *norm = self._grid
        kernel = self.weights[kernel]
        patches = np.lib.stride_tricks.sliding_window_view(obs, kernel.shape[:2], axis=(1, 2))
        patches = np.moveaxis(patches, 3, -1).astype(np.float32)  # [E, rows, columns, 3, 3, C]
        filters = kernel.shape[-1]
        places = patches.reshape(-1, kernel.size // filters) @ kernel.reshape(-1, filters)
        return self._norm(places + self.weights[bias], *norm).reshape(len(obs), -1)

    def _norm(self, features, gamma, beta):
        features = features - features.mean(axis=-1, keepdims=True)
        scale = np.sqrt(np.square(features).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
        features *= self.weights[gamma] / scale
        features += self.weights[beta]
        return np.maximum(features, 0.0, out=features)


def make_normalized_q_network(cfg, obs_spec, distribution):
    """The network that the config of PQN describes."""
    if not cfg.layer_norm:
        return make_q_network(cfg, obs_spec, distribution)
    return NormalizedMLP(distribution.num_params, cfg.hidden_units, make_torso(cfg, obs_spec))
