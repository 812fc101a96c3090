"""Quantiles of the return of each action, at any level that is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
from keras import ops

from kytolly.model.dense import noise_option
from kytolly.model.distributional_mlp import is_dueling, quantile_midpoints
from kytolly.model.dqn_mlp import (
    HiddenLayers,
    QNetwork,
    fan_in_dense,
    learning_options,
    make_torso,
)


@keras.saving.register_keras_serializable(package="kytolly")
class IQNMLP(QNetwork):
    """Action values as means of quantiles at evenly spaced levels: [B, *obs] -> [B, A] float32.

    The paper draws the levels of acting at random. Here they are the middles of equal parts of
    [0, 1], so acting and evaluation need no random numbers, and the mean is closer.

    Args:
        num_actions, hidden_units, torso: As for `QNetwork`.
        num_levels: Quantiles in the mean.
        num_cosines: Cosines of a level that the network sees.
        dueling: Whether a quantile is that of the state plus centered advantages.
        layers_after_level: Hidden layers between the level and the quantiles, fewer than there are.
            With none, all quantiles of all actions are a single product.

    Source: Dabney et al. 2018, arXiv:1806.06923, equations 3 and 4.
    """

    def __init__(
        self,
        num_actions: int,
        hidden_units: Sequence[int] = (120, 84),
        torso=None,
        num_levels: int = 8,
        num_cosines: int = 64,
        dueling: bool = False,
        noise_scale: float = 0.0,
        layers_after_level: int = 0,
        **kwargs,
    ):
        before = max(1, len(hidden_units) - layers_after_level)
        hidden = HiddenLayers(hidden_units[:before], noise_scale)
        super().__init__(num_actions, hidden_units, torso, noise_scale, hidden, **kwargs)
        self.num_levels, self.num_cosines, self.dueling = num_levels, num_cosines, dueling
        self.layers_after_level = layers_after_level
        self.after = HiddenLayers(self.hidden_units[before:], noise_scale)
        self.level_features = fan_in_dense(self.hidden_units[before - 1], num_cosines, "relu")
        self.q_values = self.head(num_actions)
        self.state_value = self.head(1) if dueling else None

    def build(self, input_shape):
        self.build_features(input_shape)
        self.level_features.build((None, self.num_cosines))
        self.after.build((None, self.hidden.hidden_units[-1]))
        self.build_heads()

    def action_quantiles(self, obs, levels, training: bool = False, noise=None):
        """[B, N, A] float32 quantiles of each action's return at levels [B, N], or [N] for all."""
        steps = math.pi * ops.arange(self.num_cosines, dtype="float32")
        cosines = ops.cast(ops.cos(ops.expand_dims(levels, -1) * steps), self.compute_dtype)
        flat = self.level_features(ops.reshape(cosines, (-1, self.num_cosines)))
        by_level = ops.reshape(flat, (*levels.shape, -1))
        options = noise_option(noise)
        features = self.features(obs, training, **options)
        traced = keras.utils.is_keras_tensor(features)  # see `model.numpy_inference`
        if not (self.after.hidden_units or noise or traced) and len(levels.shape) == 1:
            return self.quantiles_by_one_product(features, by_level)
        features = ops.expand_dims(features, 1) * by_level
        features = self.after(ops.reshape(features, (-1, features.shape[-1])), **options)
        quantiles = ops.cast(self.q_values(features, **options), "float32")
        if self.state_value is not None:
            quantiles = quantiles - ops.mean(quantiles, axis=-1, keepdims=True)
            quantiles = quantiles + ops.cast(self.state_value(features, **options), "float32")
        return ops.reshape(quantiles, (-1, levels.shape[-1], self.num_actions))

    def quantiles_by_one_product(self, features, by_level):
        """[B, N, A] of features [B, F] of the observations, and [N, F] of the levels."""
        kernel, bias = self.q_values.kernel, self.q_values.bias
        if self.state_value is not None:
            kernel = kernel - ops.mean(kernel, axis=-1, keepdims=True) + self.state_value.kernel
            bias = bias - ops.mean(bias) + self.state_value.bias
        levels = by_level.shape[0]
        weights = ops.expand_dims(ops.transpose(by_level), -1) * ops.expand_dims(
            ops.cast(kernel, by_level.dtype), 1
        )
        quantiles = features @ ops.reshape(weights, (-1, levels * self.num_actions))
        quantiles = ops.reshape(ops.cast(quantiles, "float32"), (-1, levels, self.num_actions))
        return quantiles + ops.cast(bias, "float32")

    @classmethod
    def from_config(cls, config):
        """The network of a file; older ones have a layer after the level."""
        return cls(**{"layers_after_level": 1, **config})

    def call(self, obs, training: bool = False, noise=None):
        levels = quantile_midpoints(self.num_levels)
        if any(keras.utils.is_keras_tensor(part) for part in keras.tree.flatten(obs)):
            from kytolly.model.numpy_inference import Constant

            levels = Constant(levels)
        else:
            levels = ops.convert_to_tensor(levels)
        quantiles = self.action_quantiles(obs, levels, training, **noise_option(noise))
        return ops.mean(quantiles, axis=1)

    def get_config(self):
        own = {
            "num_levels": self.num_levels,
            "num_cosines": self.num_cosines,
            "dueling": self.dueling,
            "layers_after_level": self.layers_after_level,
        }
        return {**super().get_config(), **own}


def make_implicit_quantile_network(cfg, obs_spec, distribution):
    """The network that the config of IQN describes."""
    shared = distribution.num_params, cfg.hidden_units, make_torso(cfg, obs_spec)
    own = cfg.num_acting_quantiles, cfg.num_cosines, is_dueling(cfg)
    more = {"layers_after_level": cfg.layers_after_level}
    return IQNMLP(*shared, *own, **learning_options(cfg), **more)
