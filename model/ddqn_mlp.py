"""The second D is *dueling*: two streams (policy/ddqn.py is *double*; either works alone)."""

from __future__ import annotations

import keras

from kytolly.model.dqn_mlp import QNetwork


@keras.saving.register_keras_serializable(package="kytolly")
class DuelingMLP(QNetwork):
    """Action values as a state value plus centered advantages: [B, *obs] -> [B, A] float32.

    Source: Wang et al. 2016, arXiv:1511.06581, equation 9.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.value, self.advantage = self.head(1), self.head(self.num_actions)

    def call(self, obs, training=False):
        features = self.features(obs, training)
        advantage = keras.ops.cast(self.advantage(features), "float32")
        centered = advantage - keras.ops.mean(advantage, axis=-1, keepdims=True)
        return keras.ops.cast(self.value(features), "float32") + centered

    def numpy_plan(self):
        """How `model.numpy_forward` computes the same; None where it cannot."""
        dense = [*self.hidden.dense, self.value, self.advantage]
        return self.plan_after_torso({"dense": dense, "dueling": True})
