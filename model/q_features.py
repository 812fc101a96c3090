"""What stands in front of a network of action values where observations are no vectors."""

from __future__ import annotations

from kytolly.model.image_layout import image_layout
from kytolly.model.image_torso import image_torso
from kytolly.model.observation_features import make_features


def network_features(cfg, obs_spec):
    """The layer in front of a network of action values; None where none is needed.

    An image alone passes through its convolutions, without the `ObservationFeatures` that dicts
    and normalized observations need.
    """
    network = cfg.network.removeprefix("dueling").removeprefix("_") or "mlp"
    if isinstance(obs_spec, dict) or cfg.normalize_observations:
        return make_features(cfg, network, obs_spec)
    if network == "mlp":
        return None
    convolutional, first = image_layout(cfg, network, {"": obs_spec})
    return image_torso(convolutional, bool(first), cfg.layer_norm) if convolutional else None
