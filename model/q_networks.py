"""Which network of action values a configuration asks for."""

from __future__ import annotations

from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP


def make_q_network(cfg, obs_spec, distribution):
    """The network that `cfg.network` names; `auto` takes a convolutional one for images."""
    network = DuelingMLP if cfg.network.startswith("dueling") else DQNMLP
    torso, vector = None, not isinstance(obs_spec, dict) and len(obs_spec.shape) < 3
    if cfg.normalize_observations or not vector or cfg.network.endswith("cnn"):
        from kytolly.model.q_features import network_features

        torso = network_features(cfg, obs_spec)
    return network(distribution.num_params, cfg.hidden_units, torso)
