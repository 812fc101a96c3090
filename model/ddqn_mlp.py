"""The second D is *dueling*: two streams (policy/ddqn.py is *double*; either works alone)."""

from __future__ import annotations

import keras

from kytolly.model.dqn_mlp import DQNMLP, fan_in_dense


@keras.saving.register_keras_serializable(package="kytolly")
class DuelingMLP(DQNMLP):
    """Action values as a state value plus centered advantages: [B, *obs] -> [B, A] float32.

    Source: Wang et al. 2016, arXiv:1511.06581, equation 9.
    """

    def make_heads(self, width):
        """Make a stream for the state's value, and one for the advantages."""
        self.value = fan_in_dense(1, width, noise_scale=self.noise_scale)
        self.advantage = fan_in_dense(self.num_actions, width, noise_scale=self.noise_scale)

    def call(self, obs, training=False):
        features = self.features(obs, training)
        advantage = keras.ops.cast(self.advantage(features), "float32")
        centered = advantage - keras.ops.mean(advantage, axis=-1, keepdims=True)
        return keras.ops.cast(self.value(features), "float32") + centered

    def numpy_plan(self):
        """How `model.numpy_forward` computes the same; None where it cannot."""
        dense = [*self.hidden.dense, self.value, self.advantage]
        return self.plan_after_torso({"dense": dense, "dueling": True})
