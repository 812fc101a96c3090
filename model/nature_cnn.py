"""Convolutional torsos for images and for small grids."""

from __future__ import annotations

import itertools
import math

import keras

from kytolly.model.matmul_conv2d import MatmulConv2D, MatmulGradientConv2D


@keras.saving.register_keras_serializable(package="kytolly")
class NatureCNN(keras.layers.Layer):
    """Features of an image: [B, H, W, C] uint8 or float -> [B, features].

    Integer images are divided by 255. A side of less than 36 pixels keeps its resolution longer:
    two strides of 2, one below 16 pixels and none below 9. The image is then padded.

    Args:
        channels_first: Images are [B, C, H, W], or stacks [B, T, H, W, C] of images, whose last
            axis is then made of all channels of all images.
        layer_norm: Normalize the channels of every place before each ReLU.
        halves: False: a side of less than 36 pixels is not shortened, as in models that were
            saved before there was a choice.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """

    LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # filters, kernel, stride
    MAX_INTEGER = 255.0  # integers are divided by it
    convolution_type: type[keras.layers.Conv2D] = MatmulGradientConv2D

    def __init__(
        self,
        channels_first: bool = False,
        layer_norm: bool = False,
        halves: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.channels_first, self.layer_norm, self.halves = channels_first, layer_norm, halves
        self.convolutions: list[keras.layers.Layer] = []
        self.norms: list[keras.layers.Layer] = []

    def channels_last(self, input_shape):
        """The shape [B, H, W, C] in which images are convolved."""
        if self.channels_first:
            batch, first, height, width, *rest = input_shape
            return (batch, height, width, math.prod([first, *rest]))
        return tuple(input_shape)

    def require_image(self, input_shape):
        """Refuse observations that are no images."""
        if len(input_shape) != 4 and not (self.channels_first and len(input_shape) == 5):
            raise ValueError(
                f"{type(self).__name__} got observations of shape {tuple(input_shape[1:])}, "
                "expected (height, width, channels). Use network='mlp' for vectors, or add a "
                "channel axis."
            )

    def build(self, input_shape):
        self.require_image(input_shape)
        shape = self.channels_last(input_shape)
        for filters, kernel, strides, padding in self.plan(shape):
            layer = self.convolution(filters, kernel, strides, padding)
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
            self.convolutions.append(layer)
            if self.layer_norm:
                self.norms.append(keras.layers.LayerNormalization(epsilon=1e-6))
                self.norms[-1].build(shape)
        self.built = True

    def plan(self, shape):
        """Filters, [2] kernel, [2] strides and padding of each convolution of [B, H, W, C]."""
        long = [side >= 36 for side in shape[1:3]]
        halvings = [(side >= 9) + (side >= 16) if self.halves else 0 for side in shape[1:3]]
        layers = []
        for number, (filters, kernel, stride) in enumerate(self.LAYERS):
            short = [(4, 2) if number < count else (min(kernel, 3), 1) for count in halvings]
            sides = [
                (kernel, stride) if is_long else steps
                for is_long, steps in zip(long, short, strict=True)
            ]
            kernels, strides = zip(*sides, strict=True)
            layers.append((filters, kernels, strides, "valid" if all(long) else "same"))
        return layers

    def convolution(self, filters: int, kernel, strides, padding):
        """One layer; where a norm follows, the ReLU comes after that."""
        return self.convolution_type(
            filters,
            kernel,
            strides,
            padding=padding,
            activation=None if self.layer_norm else "relu",
            kernel_initializer="he_normal" if self.layer_norm else "glorot_uniform",
        )

    def compute_output_shape(self, input_shape):
        shape = self.channels_last(input_shape)
        size = shape[1:3]
        for _, kernel, strides, padding in self.plan(shape):
            lost = kernel if padding == "valid" else (1, 1)
            size = [
                (side - k) // step + 1 for side, k, step in zip(size, lost, strides, strict=True)
            ]
        return (input_shape[0], size[0] * size[1] * self.LAYERS[-1][0])

    def call(self, obs):
        integer = keras.backend.standardize_dtype(obs.dtype).startswith(("uint", "int"))
        if self.channels_first:
            moved = keras.ops.moveaxis(obs, 1, -1)
            obs = keras.ops.reshape(moved, (-1, *self.channels_last(obs.shape)[1:]))
        features = keras.ops.cast(obs, self.compute_dtype)
        if integer:
            features = features / self.MAX_INTEGER
        features = self.features(features)
        return keras.ops.reshape(features, (-1, math.prod(features.shape[1:])))

    def features(self, images):
        """[B, h, w, F] of images."""
        for layer, norm in itertools.zip_longest(self.convolutions, self.norms):
            images = layer(images)
            if norm is not None:
                images = keras.ops.relu(norm(images))
        return images

    def get_config(self):
        names = ("channels_first", "layer_norm", "halves")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="kytolly")
class GridCNN(NatureCNN):
    """Features of a small grid of bools or numbers, such as MinAtar's: [B, H, W, C] -> [B, F].

    Numbers stay as they are. The paper's convolution has no padding, and one dense layer of 128
    follows it; this one pads, so that a grid may have any size, and `hidden_units` follow. With
    `layer_norm` only a grid of less than 3 fields a side is padded, as in PQN.

    Source: Young & Tian 2019, "MinAtar", arXiv:1903.03176, section 3.
    """

    LAYERS = ((16, 3, 1),)
    MAX_INTEGER = 1.0
    convolution_type = MatmulConv2D

    def plan(self, shape):
        """As in the parent."""
        padding = "valid" if self.layer_norm and min(shape[1:3]) >= 3 else "same"
        return [(n, (size, size), (step, step), padding) for n, size, step in self.LAYERS]


@keras.saving.register_keras_serializable(package="kytolly")
class SmallCNN(NatureCNN):
    """Features of an image for a tenth of `NatureCNN`'s work: for learning on a CPU.

    The first kernels do not overlap, so they are one product of 6 x 6 blocks of pixels.
    """

    LAYERS = ((32, 6, 6), (32, 4, 2))
