"""The second D is *dueling*: two streams (policy/ddqn.py is *double*; either works alone)."""

from __future__ import annotations

import keras

from kytolly.model.dqn_mlp import HiddenLayers, fan_in_dense


@keras.saving.register_keras_serializable(package="kytolly")
class DuelingMLP(keras.Model):
    """Action values as a state value plus centred advantages: [B, *obs] -> [B, A] float32.

    Source: Wang et al. 2016, arXiv:1511.06581, equation 9.

    Args:
        num_actions: `A`.
        hidden_units: Widths of the dense ReLU layers that both streams share.
        torso: Layer in front of them, such as `model.nature_cnn.NatureCNN` for images.
    """

    def __init__(self, num_actions, hidden_units=(120, 84), torso=None, **kwargs):
        super().__init__(**kwargs)
        self.num_actions = num_actions
        self.hidden_units = tuple(hidden_units)
        is_config = isinstance(torso, dict)
        self.torso = keras.saving.deserialize_keras_object(torso) if is_config else torso
        self.hidden = HiddenLayers(self.hidden_units)
        self.value = fan_in_dense(1, self.hidden_units[-1])
        self.advantage = fan_in_dense(num_actions, self.hidden_units[-1])

    def build(self, input_shape):
        if self.torso is not None:
            if not self.torso.built:  # a torso from a file comes built
                self.torso.build(input_shape)
            input_shape = self.torso.compute_output_shape(input_shape)
        self.hidden.build(input_shape)
        width = self.hidden.compute_output_shape(input_shape)
        self.value.build(width)
        self.advantage.build(width)
        self.built = True

    def call(self, obs, training=False):
        features = self.hidden(obs if self.torso is None else self.torso(obs))
        advantage = keras.ops.cast(self.advantage(features), "float32")
        centred = advantage - keras.ops.mean(advantage, axis=-1, keepdims=True)
        return keras.ops.cast(self.value(features), "float32") + centred

    def get_config(self):
        torso = None if self.torso is None else keras.saving.serialize_keras_object(self.torso)
        own = {"num_actions": self.num_actions, "hidden_units": self.hidden_units, "torso": torso}
        return {**super().get_config(), **own}
