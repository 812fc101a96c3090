"""Which network of action values a configuration asks for."""

from __future__ import annotations

from kytolly.model.dqn_mlp import DQNMLP


def make_q_network(cfg, obs_spec, distribution):
    """The network that `cfg.network` names; `auto` takes a convolutional one for images."""
    network = DQNMLP
    if cfg.network.startswith("dueling"):
        from kytolly.model.ddqn_mlp import DuelingMLP as network
    shared = distribution.num_params, cfg.hidden_units, make_torso(cfg, obs_spec)
    return network(*shared, **noise_options(cfg))


def noise_options(cfg):
    """What a network's maker takes for the noise of its weights."""
    return {"noise_scale": cfg.noise_scale} if getattr(cfg, "noisy", False) else {}


def make_torso(cfg, obs_spec):
    """The layer in front of the hidden ones; None for vectors that are taken as they are."""
    vector = not isinstance(obs_spec, dict) and len(obs_spec.shape) < 3
    if vector and not (cfg.normalize_observations or cfg.network.endswith(("cnn", "impala"))):
        return None
    from kytolly.model.q_features import network_features

    return network_features(cfg, obs_spec)
