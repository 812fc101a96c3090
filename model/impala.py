"""The residual convolutions of IMPALA, and what later work has added to them."""

from __future__ import annotations

import keras
from keras import ops

from kytolly.model.nature_cnn import NatureCNN

EPSILON = 1e-12


@keras.saving.register_keras_serializable(package="kytolly")
class ImpalaCNN(NatureCNN):
    """Features of an image: [B, H, W, C] uint8 or float -> [B, features].

    Three times: a convolution, a maximum over 3 x 3 pixels that halves the sides, and two residual
    blocks of two convolutions.

    Args:
        channels_first: As for `NatureCNN`.
        width: Times the paper's 16, 32 and 32 channels.
        pool_size: Cells of a side of which each passes its maximum on; 0: every pixel passes.
        spectral_norm: Divide the residual kernels by their largest singular value.

    Source: Espeholt et al. 2018, arXiv:1802.01561, figure 3; for the arguments: Clark et al. 2024,
    "Beyond the Rainbow", arXiv:2411.03820.
    """

    CHANNELS = (16, 32, 32)

    def __init__(
        self,
        channels_first: bool = False,
        width: int = 1,
        pool_size: int = 0,
        spectral_norm: bool = False,
        **kwargs,
    ):
        super().__init__(channels_first, **kwargs)
        self.width, self.pool_size, self.spectral_norm = width, pool_size, spectral_norm
        self.residuals: list[keras.layers.Layer] = []  # four after each convolution

    def build(self, input_shape):
        height, width, channels = self.image_size(input_shape)
        for filters in self.filters():
            first = self.convolution_type(filters, 3, padding="same")
            first.build((None, height, width, channels))
            height, width, channels = -(-height // 2), -(-width // 2), filters
            kind = SpectralConv2D if self.spectral_norm else self.convolution_type
            layers = [kind(filters, 3, padding="same") for _ in range(4)]
            for layer in layers:
                layer.build((None, height, width, channels))
            self.convolutions.append(first)
            self.residuals.extend(layers)
        self.built = True

    def filters(self):
        """Channels of the three parts."""
        return [count * self.width for count in self.CHANNELS]

    def image_size(self, input_shape):
        """(H, W, C) of an input; a ValueError for what is no image."""
        self.require_image(input_shape)
        return self.channels_last(input_shape)[1:]

    def compute_output_shape(self, input_shape):
        height, width, _ = self.image_size(input_shape)
        for _ in self.CHANNELS:
            height, width = -(-height // 2), -(-width // 2)
        if self.pool_size:
            height, width = self.pool_size, self.pool_size
        return (input_shape[0], height * width * self.filters()[-1])

    def features(self, images):
        """[B, h, w, F] of images."""
        for index, first in enumerate(self.convolutions):
            images = ops.max_pool(first(images), 3, 2, "same")
            layers = self.residuals[4 * index : 4 * index + 4]
            for one, other in (layers[:2], layers[2:]):
                inner = ops.relu(one(ops.relu(images)))
                images = images + other(inner)
        images = ops.relu(images)
        return adaptive_max_pool(images, self.pool_size) if self.pool_size else images

    def get_config(self):
        own = {"width": self.width, "pool_size": self.pool_size}
        return {**super().get_config(), **own, "spectral_norm": self.spectral_norm}


@keras.saving.register_keras_serializable(package="kytolly")
class SpectralConv2D(keras.layers.Conv2D):
    """A convolution whose kernel, as a matrix [pixels x channels, filters], has the norm 1.

    A step of power iteration estimates the norm whenever the layer is called; its vector is kept
    when it learns. `keras.layers.SpectralNormalization` changes the kernel itself, and only then.

    Source: Miyato et al. 2018, arXiv:1802.05957, algorithm 1.
    """

    def build(self, input_shape):
        super().build(input_shape)
        start = keras.initializers.RandomNormal()
        self.vector = self.add_weight((1, self.filters), start, trainable=False, name="vector")

    # A convolution's own methods save the kernel and the bias alone.
    save_own_variables = keras.layers.Layer.save_own_variables
    load_own_variables = keras.layers.Layer.load_own_variables

    def unit_kernel(self, training: bool):
        """The kernel divided by its norm."""
        matrix = ops.reshape(ops.convert_to_tensor(self.kernel), (-1, self.filters))
        fixed = ops.stop_gradient(matrix)
        other = unit(ops.matmul(ops.convert_to_tensor(self.vector), ops.transpose(fixed)))
        vector = unit(ops.matmul(other, fixed))
        if training:
            self.vector.assign(ops.cast(vector, self.vector.dtype))
        norm = ops.sum(ops.matmul(other, matrix) * vector)
        return ops.reshape(matrix / norm, self.kernel.shape)

    def call(self, images, training: bool = False):
        kernel = ops.cast(self.unit_kernel(training), images.dtype)
        features = ops.conv(images, kernel, 1, "same")
        return self.activation(features + ops.cast(self.bias, features.dtype))


def unit(vector):
    """A vector of length 1."""
    return vector / (ops.sqrt(ops.sum(ops.square(vector))) + EPSILON)


def adaptive_max_pool(images, size):
    """[B, size, size, C] maxima of cells that cover [B, H, W, C] evenly, and overlap if need be."""
    for axis in (1, 2):
        side, parts = images.shape[axis], []
        for cell in range(size):
            first, end = cell * side // size, -(-(cell + 1) * side // size)
            part = images[:, first:end] if axis == 1 else images[:, :, first:end]
            parts.append(ops.max(part, axis=axis))
        images = ops.stack(parts, axis=axis)
    return images
