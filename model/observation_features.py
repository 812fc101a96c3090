"""One vector from an observation of any form."""

from __future__ import annotations

import math

import keras
from keras import ops

from kytolly.model.normalization import RunningNormalization


@keras.saving.register_keras_serializable(package="kytolly")
class ObservationFeatures(keras.layers.Layer):
    """One vector from an observation: [B, *obs], or a dict of them -> [B, features].

    Entries of a dict follow each other in the order of their names.

    Args:
        convolutional: Whether entries with three axes are images, which pass through what
            `image_torso.image_torso` makes of this; the rest is flattened.
        normalizes: Whether what is no image is brought to mean 0 and deviation 1, or the names of
            the entries that are.
        clip: Largest normalized number.
        channels_first: Names of the images whose channels come first, or that are stacks.
        layer_norm: As for `NatureCNN`.
    """

    def __init__(
        self,
        convolutional: bool | str | dict = False,
        normalizes=False,
        clip: float = 10.0,
        channels_first: bool = (),
        layer_norm: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.convolutional, self.normalizes, self.clip = convolutional, normalizes, clip
        self.channels_first, self.layer_norm = tuple(channels_first), layer_norm
        self.images, self.normalizers, self.width = {}, {}, 0

    def build(self, input_shape):
        shapes = input_shape if isinstance(input_shape, dict) else {"": input_shape}
        for name, shape in sorted(shapes.items()):
            width = math.prod(shape[1:])
            if self.convolutional and (len(shape) == 4 or name in self.channels_first):
                self.images[name] = self._image_torso(name)
                self.images[name].build(tuple(shape))
                width = self.images[name].compute_output_shape(shape)[1]
            elif self.normalizes is True or name in (self.normalizes or ()):
                self.normalizers[name] = RunningNormalization(self.clip)
                self.normalizers[name].build(shape)
            self.width += width

    def compute_output_shape(self, input_shape):
        return (None, self.width)

    def call(self, obs):
        parts = []
        for name, part in sorted(obs.items()) if isinstance(obs, dict) else [("", obs)]:
            if name in self.images:
                part = self.images[name](part)
            elif name in self.normalizers:
                part = self.normalizers[name](part)
            part = ops.cast(part, self.compute_dtype)
            parts.append(ops.reshape(part, (-1, math.prod(part.shape[1:]))))
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)

    def update(self, obs):
        """Count the rows of observations [B, *obs] into the normalization's statistics."""
        for name, normalizer in self.normalizers.items():
            normalizer.update(obs[name] if isinstance(obs, dict) else obs)

    def _image_torso(self, name):
        from kytolly.model.image_torso import image_torso

        return image_torso(self.convolutional, name in self.channels_first, self.layer_norm)


def make_features(cfg, network, obs_spec):
    """The layer that the configuration describes, for an architecture such as `auto` or `cnn`."""
    entries = obs_spec if isinstance(obs_spec, dict) else {"": obs_spec}
    convolutional: bool | str | dict = False
    channels_first: tuple[str, ...] = ()
    if network != "mlp" and any(len(entry.shape) > 2 for entry in entries.values()):
        from kytolly.model.image_torso import image_layout

        convolutional, channels_first = image_layout(cfg, network, entries)
    vectors = {name: entry for name, entry in entries.items() if len(entry.shape) == 1}
    real = [name for name, entry in vectors.items() if entry.dtype.is_floating]
    mixed = cfg.normalize_observations and 0 < len(real) < len(entries)
    return ObservationFeatures(
        convolutional,
        real if mixed else cfg.normalize_observations,
        cfg.normalized_clip,
        channels_first,
        bool(cfg.layer_norm),
    )


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
    from kytolly.model.image_torso import image_layout, image_torso

    convolutional, first = image_layout(cfg, network, {"": obs_spec})
    return image_torso(convolutional, bool(first), bool(cfg.layer_norm)) if convolutional else None
