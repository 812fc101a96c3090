"""Which network of action values a configuration asks for."""

from __future__ import annotations

# All of them at once: Keras reads a class from a file only where its module is imported.
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.model.nature_cnn import NatureCNN


def make_q_network(cfg, obs_spec, distribution):
    """The network that `cfg.network` names; `auto` takes a convolutional one for images."""
    image = len(obs_spec.shape) == 3 and obs_spec.dtype == "uint8"
    kind = cfg.network if cfg.network != "auto" else ("cnn" if image else "mlp")
    network = DuelingMLP if kind.startswith("dueling") else DQNMLP
    torso = NatureCNN() if kind.endswith("cnn") else None
    return network(distribution.num_params, cfg.hidden_units, torso)
