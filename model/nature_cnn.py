"""Convolutional torsos for images and for small grids."""

from __future__ import annotations

import math

import keras


@keras.saving.register_keras_serializable(package="kytolly")
class NatureCNN(keras.layers.Layer):
    """Features of an image: [B, H, W, C] uint8 or float -> [B, features].

    Integer images are divided by 255. Images smaller than 36 pixels a side keep their resolution
    longer (stride 1, padding), so that small games work too.

    Args:
        channels_first: Images are [B, C, H, W], or stacks [B, T, H, W, C] of images, whose last
            axis is then made of all channels of all images.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """

    LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # filters, kernel, stride
    LARGEST_INTEGER = 255.0  # integers are divided by it

    def __init__(self, channels_first=False, **kwargs):
        super().__init__(**kwargs)
        self.channels_first = channels_first
        self.convolutions: list[keras.layers.Layer] = []

    def channels_last(self, input_shape):
        """The shape [B, H, W, C] in which images are convolved."""
        if self.channels_first:
            batch, first, height, width, *rest = input_shape
            return (batch, height, width, math.prod([first, *rest]))
        return tuple(input_shape)

    def build(self, input_shape):
        if len(input_shape) != 4 and not (self.channels_first and len(input_shape) == 5):
            raise ValueError(
                f"NatureCNN got observations of shape {tuple(input_shape[1:])}, expected "
                "(height, width, channels). Use network='mlp' for vectors, or add a channel axis."
            )
        shape = self.channels_last(input_shape)
        small = min(shape[1:3]) < 36
        self.convolutions = [
            keras.layers.Conv2D(
                filters,
                min(kernel, 3) if small else kernel,
                1 if small else stride,
                padding="same" if small else "valid",
                activation="relu",
            )
            for filters, kernel, stride in self.LAYERS
        ]
        for layer in self.convolutions:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        self.built = True

    def compute_output_shape(self, input_shape):
        size = list(self.channels_last(input_shape)[1:3])
        if min(size) >= 36:
            for _, kernel, stride in self.LAYERS:
                size = [(side - kernel) // stride + 1 for side in size]
        return (input_shape[0], size[0] * size[1] * self.LAYERS[-1][0])

    def call(self, obs):
        integer = keras.backend.standardize_dtype(obs.dtype).startswith(("uint", "int"))
        if self.channels_first:
            moved = keras.ops.moveaxis(obs, 1, -1)
            obs = keras.ops.reshape(moved, (-1, *self.channels_last(obs.shape)[1:]))
        features = keras.ops.cast(obs, self.compute_dtype)
        if integer:
            features = features / self.LARGEST_INTEGER
        for layer in self.convolutions:
            features = layer(features)
        return keras.ops.reshape(features, (-1, math.prod(features.shape[1:])))

    def get_config(self):
        return {**super().get_config(), "channels_first": self.channels_first}


@keras.saving.register_keras_serializable(package="kytolly")
class GridCNN(NatureCNN):
    """Features of a small grid of bools or numbers, such as MinAtar's: [B, H, W, C] -> [B, F].

    Numbers stay as they are. The paper's convolution has no padding, and one dense layer of 128
    follows it; this one pads, so that a grid may have any size, and `hidden_units` follow.

    Source: Young & Tian 2019, "MinAtar", arXiv:1903.03176, section 3.
    """

    LAYERS = ((16, 3, 1),)
    LARGEST_INTEGER = 1.0
