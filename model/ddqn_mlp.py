"""The second D is *dueling*: two streams (policy/ddqn.py is *double*; either works alone)."""

from __future__ import annotations

import keras

from kytolly.model.dqn_mlp import QNetwork, fan_in_dense


@keras.saving.register_keras_serializable(package="kytolly")
class DuelingMLP(QNetwork):
    """Action values as a state value plus centered advantages: [B, *obs] -> [B, A] float32.

    Source: Wang et al. 2016, arXiv:1511.06581, equation 9.
    """

    def __init__(self, num_actions, hidden_units=(120, 84), torso=None, **kwargs):
        super().__init__(num_actions, hidden_units, torso, **kwargs)
        self.value = fan_in_dense(1, self.hidden_units[-1])
        self.advantage = fan_in_dense(num_actions, self.hidden_units[-1])

    def build(self, input_shape):
        width = self.build_features(input_shape)
        self.value.build(width)
        self.advantage.build(width)
        self.built = True

    def call(self, obs, training=False):
        features = self.features(obs)
        advantage = keras.ops.cast(self.advantage(features), "float32")
        centered = advantage - keras.ops.mean(advantage, axis=-1, keepdims=True)
        return keras.ops.cast(self.value(features), "float32") + centered

    def numpy_plan(self):
        """How `model.numpy_forward` computes the same; None where it cannot."""
        if self.torso is not None:
            return None
        return {"dense": [*self.hidden.dense, self.value, self.advantage], "dueling": True}
