"""The choice of a network for action values."""

from __future__ import annotations

from kytolly.model.dqn_mlp import DQNMLP


def make_q_network(cfg, obs_spec, distribution):
    """The network that `cfg.network` names; `auto` takes a convolutional one for images."""
    image = len(obs_spec.shape) == 3 and obs_spec.dtype == "uint8"
    kind = cfg.network if cfg.network != "auto" else ("cnn" if image else "mlp")
    torso, network = None, DQNMLP
    if kind.endswith("cnn"):
        from kytolly.model.nature_cnn import NatureCNN

        torso = NatureCNN()
    if kind.startswith("dueling"):
        from kytolly.model.ddqn_mlp import DuelingMLP

        network = DuelingMLP
    return network(distribution.num_params, cfg.hidden_units, torso)
