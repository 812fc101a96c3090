"""Action values from layers that are normalized before each ReLU, as PQN and DQN learn them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import keras

from kytolly.model.dqn_mlp import DQNMLP, HiddenLayers, fan_in_dense

EPSILON = 1e-6  # of the reference, flax; Keras's 1e-3 weakens the norm of faint inputs


@keras.saving.register_keras_serializable(package="kytolly")
class NormalizedLayers(HiddenLayers):
    """Dense layers, each followed by a layer norm and a ReLU: [B, *obs] -> [B, units].

    Args:
        hidden_units: Widths.
        he_normal: Kernels begin He-normal and biases at 0; else as `fan_in_dense` has them.
    """

    def __init__(self, hidden_units: Sequence[int] = (128, 128), he_normal: bool = False, **kwargs):
        super().__init__(hidden_units, **kwargs)
        self.he_normal, self.norms = he_normal, []

    def build(self, input_shape):
        width = math.prod(input_shape[1:])
        for units in self.hidden_units:
            if self.he_normal:
                self.dense.append(keras.layers.Dense(units, kernel_initializer="he_normal"))
            else:
                self.dense.append(fan_in_dense(units, width))
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
        he_normal: As for `NormalizedLayers`.

    Source: Gallici et al. 2024, arXiv:2407.04811, section 3; Ba et al. 2016, arXiv:1607.06450.
    """

    def __init__(
        self,
        num_actions: int,
        hidden_units: Sequence[int] = (128, 128),
        torso=None,
        he_normal: bool = False,
        **kwargs,
    ):
        hidden = NormalizedLayers(hidden_units, he_normal)
        super().__init__(num_actions, hidden_units, torso, hidden=hidden, **kwargs)

    def variables_of_old_files(self):
        """Every variable as old checkpoints list them; a shape stands for a dead one.

        There the network had its parent's hidden layers too, which no output needed: built last,
        for as many inputs as they have outputs.
        """
        if self.learns_scale:  # never in PQN, which alone had such files
            return []
        torso = [] if self.torso is None else self.torso.variables
        widths = (self.hidden_units[-1], *self.hidden_units)
        dead = [shape for pair in itertools.pairwise(widths) for shape in (pair, pair[1:])]
        return [*torso, *dead, *self.q_values.variables, *self.hidden.variables]
