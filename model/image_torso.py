"""Which convolutions an image passes through."""

from __future__ import annotations

from kytolly.model.nature_cnn import GridCNN, NatureCNN, SmallCNN


def image_torso(kind, channels_first=False, layer_norm=False):
    """The layer for images: NatureCNN, or what `image_layout` says instead of True."""
    if isinstance(kind, dict):
        from kytolly.model.impala import ImpalaCNN

        return ImpalaCNN(channels_first, **kind)
    return {"grid": GridCNN, "small": SmallCNN}.get(kind, NatureCNN)(channels_first, layer_norm)
