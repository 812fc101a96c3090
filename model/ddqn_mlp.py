"""The second D is *dueling*: two streams (policy/ddqn.py is *double*; either works alone)."""

from __future__ import annotations

import keras

from kytolly.model.dqn_mlp import DQNMLP, QNetwork, learning_options, make_torso


@keras.saving.register_keras_serializable(package="kytolly")
class DuelingMLP(QNetwork):
    """Action values as a state value plus centered advantages: [B, *obs] -> [B, A] float32.

    Source: Wang et al. 2016, arXiv:1511.06581, equation 9.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.value, self.advantage = self.head(1), self.head(self.num_actions)

    def output_layers(self):
        return (self.value, self.advantage)

    def call(self, obs, training: bool = False, noise=None, wide=None):
        value, advantage = self.head_outputs(obs, training, noise, wide)
        return value + (advantage - keras.ops.mean(advantage, axis=-1, keepdims=True))


def make_q_network(cfg, obs_spec, distribution):
    """The network that `cfg.network` names; `auto` takes a convolutional one for images."""
    if cfg.network == "table":
        from kytolly.model.q_table import make_q_table

        return make_q_table(cfg, distribution)
    shared = distribution.num_params, cfg.hidden_units, make_torso(cfg, obs_spec)
    if cfg.layer_norm:
        from kytolly.model.normalized_mlp import NormalizedMLP

        return NormalizedMLP(*shared, he_normal=cfg.he_normal, **learning_options(cfg))
    network = DuelingMLP if cfg.network.startswith("dueling") else DQNMLP
    return network(*shared, **learning_options(cfg))
