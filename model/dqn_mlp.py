"""Action values straight from the last hidden layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras

from kytolly.model.dense import dense, noise_option


def fan_in_dense(units: int, fan_in: int, activation: str | None = None, noise_scale: float = 0.0):
    """Dense layer whose kernel and bias begin uniform in +-1/sqrt(fan_in).

    Above a scale of 0 it is noisy.

    Keras's zero biases make a ReLU network homogeneous: its values first grow with the size of
    the observation, which is the wrong way round for every task that ends far from the origin.
    """
    bound = 1.0 / math.sqrt(fan_in)
    kernel, bias = (keras.initializers.RandomUniform(-bound, bound) for _ in range(2))
    initializers = {"kernel_initializer": kernel, "bias_initializer": bias}
    if noise_scale:
        from kytolly.model.noisy import NoisyDense

        return NoisyDense(units, activation, noise_scale, **initializers)
    return dense(units, activation, **initializers)


@keras.saving.register_keras_serializable(package="kytolly")
class HiddenLayers(keras.layers.Layer):
    """Flattens an observation and passes it through dense ReLU layers: [B, *obs] -> [B, units]."""

    def __init__(self, hidden_units: Sequence[int] = (120, 84), noise_scale: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.hidden_units, self.noise_scale, self.dense = tuple(hidden_units), noise_scale, []

    def build(self, input_shape):
        width = math.prod(input_shape[1:])
        for units in self.hidden_units:
            self.dense.append(fan_in_dense(units, width, "relu", self.noise_scale))
            self.dense[-1].build((None, width))
            width = units

    def compute_output_shape(self, input_shape):
        widths = (math.prod(input_shape[1:]), *self.hidden_units)
        return (input_shape[0], widths[-1])

    def call(self, obs, noise=None):
        features = keras.ops.cast(obs, self.compute_dtype)
        features = keras.ops.reshape(features, (-1, math.prod(features.shape[1:])))
        for layer in self.dense:
            features = layer(features, **noise_option(noise))
        return features


class QNetwork(keras.Model):
    """The torso and hidden layers of networks of action values. A subclass has the heads.

    Args:
        num_actions: `A`.
        hidden_units: Widths of the dense ReLU layers.
        torso: Layer in front of them, such as `model.nature_cnn.NatureCNN` for images, or
            `model.observation_features.ObservationFeatures` for dicts and for normalization.
        noise_scale: Of the layers after the torso, as in `model.noisy.NoisyDense`; 0: no noise.
        hidden: Layers between the torso and the heads; None: a `HiddenLayers`.
        learns_scale: Whether the values are in units that change while it learns: the weight
            `reward_scale` is the factor by which they are larger than returns.
    """

    def __init__(
        self,
        num_actions: int,
        hidden_units: Sequence[int] = (120, 84),
        torso=None,
        noise_scale: float = 0.0,
        hidden=None,
        learns_scale: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if learns_scale:
            self.reward_scale = self.add_weight(
                (), "ones", "float32", trainable=False, autocast=False, name="reward_scale"
            )
        self.learns_scale = learns_scale
        self.num_actions, self.hidden_units = num_actions, tuple(hidden_units)
        self.noise_scale = noise_scale
        is_config = isinstance(torso, dict)
        self.torso = keras.saving.deserialize_keras_object(torso) if is_config else torso
        self.hidden = HiddenLayers(self.hidden_units, noise_scale) if hidden is None else hidden

    def head(self, units: int):
        """A built dense layer that follows the hidden ones."""
        layer = fan_in_dense(units, self.hidden_units[-1], noise_scale=self.noise_scale)
        layer.build((None, self.hidden_units[-1]))
        return layer

    def build(self, input_shape):
        self.build_features(input_shape)
        self.build_heads()

    def build_features(self, input_shape):
        """Build the torso and the hidden layers."""
        if self.torso is not None:
            if not self.torso.built:  # a torso from a file comes built
                self.torso.build(input_shape)
            input_shape = self.torso.compute_output_shape(input_shape)
        self.hidden.build(input_shape)

    def build_heads(self):
        """Build the heads that are not made by `head`: those of a user's subclass."""
        for layer in self.layers:
            if not layer.built:
                layer.build((None, self.hidden_units[-1]))

    def features(self, obs, training: bool = False, noise=None):
        """[B, features] of [B, *obs]."""
        if self.torso is not None:
            obs = self.torso(obs, training=training)
        return self.hidden(obs, **noise_option(noise))

    def output_layers(self):
        """The dense layers that follow the hidden ones; a subclass may have others."""
        return ()

    def wide_groups(self):
        """The layers as groups that are one product each; see `model.wide_products`."""
        if type(self.hidden) is not HiddenLayers or type(self).features is not QNetwork.features:
            return []
        from kytolly.model.wide_products import Group

        return [*(Group((layer,)) for layer in self.hidden.dense), Group(self.output_layers())]

    def head_outputs(self, obs, training: bool = False, noise=None, wide=None):
        """[B, N] float32 outputs of each of the `output_layers`."""
        if wide is not None:
            from kytolly.model.wide_products import wide_head_outputs

            return wide_head_outputs(self, obs, training, wide)
        options = noise_option(noise)
        features, heads = self.features(obs, training, **options), self.output_layers()
        return [keras.ops.cast(head(features, **options), "float32") for head in heads]

    def update_statistics(self, obs):
        """Count the rows of observations into the normalization's statistics, if there are any."""
        self.torso.update(obs)

    def get_config(self):
        torso = None if self.torso is None else keras.saving.serialize_keras_object(self.torso)
        own = {"num_actions": self.num_actions, "hidden_units": self.hidden_units, "torso": torso}
        own |= {"noise_scale": self.noise_scale} if self.noise_scale else {}
        own |= {"learns_scale": True} if self.learns_scale else {}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="kytolly")
class DQNMLP(QNetwork):
    """Action values of an observation: [B, *obs] -> [B, A] float32; arguments as `QNetwork`'s."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.q_values = self.head(self.num_actions)

    def output_layers(self):
        return (self.q_values,)

    def call(self, obs, training: bool = False, noise=None, wide=None):
        return self.head_outputs(obs, training, noise, wide)[0]


def learning_options(cfg):
    """The options of a network's maker for the noise of its weights and the scale of its values."""
    options = {"noise_scale": cfg.noise_scale} if getattr(cfg, "noisy", False) else {}
    return options | ({"learns_scale": True} if getattr(cfg, "reward_scale", 1.0) is None else {})


def make_torso(cfg, obs_spec):
    """The layer in front of the hidden ones; None for vectors that are taken as they are."""
    vector = not isinstance(obs_spec, dict) and len(obs_spec.shape) < 3
    if vector and not (cfg.normalize_observations or cfg.network.endswith(("cnn", "impala"))):
        return None
    from kytolly.model.observation_features import network_features

    return network_features(cfg, obs_spec)
