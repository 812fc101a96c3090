"""Convolutions, or their gradients, as matrix products: what XLA on a CPU is slow at."""

from __future__ import annotations

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kytolly", name="Conv2D")
class MatmulConv2D(keras.layers.Conv2D):
    """A convolution of stride 1 as a product of its patches and its kernel.

    The same function as `keras.layers.Conv2D`. In a loop on a CPU, XLA takes ten times as long for
    the gradient of its convolution: 115 microseconds a row of 10 x 10 fields instead of 14. Patches
    are made of slices: `take` computes a place for each number, which takes three times as long.
    """

    def call(self, inputs):
        height, width = self.kernel_size
        if self.padding == "same":
            inputs = pad(inputs, self.kernel_size)
        rows, columns = inputs.shape[1] - height + 1, inputs.shape[2] - width + 1
        shifts = [(i, j) for i in range(height) for j in range(width)]
        windows = [inputs[:, i : i + rows, j : j + columns] for i, j in shifts]
        patches = ops.concatenate(windows, axis=-1)
        size = patches.shape[-1]
        kernel = ops.reshape(ops.cast(self.kernel, patches.dtype), (size, self.filters))
        outputs = ops.matmul(ops.reshape(patches, (-1, size)), kernel)
        outputs = ops.reshape(outputs, (-1, rows, columns, self.filters))
        if self.bias is not None:
            outputs = outputs + ops.cast(self.bias, outputs.dtype)
        return outputs if self.activation is None else self.activation(outputs)


@keras.saving.register_keras_serializable(package="kytolly")
class MatmulGradientConv2D(keras.layers.Conv2D):
    """A convolution whose gradient is made of matrix products.

    The same function as `keras.layers.Conv2D`. A GPU has its own fast gradient, and a kernel that
    strides do not divide keeps XLA's.
    """

    def call(self, images):
        stride, (size, _) = self.strides[0], self.kernel_size
        fits = self.kernel_size == (size, size) and self.strides == (stride, stride)
        if not fits or size % stride or has_gpu():
            return super().call(images)
        if self.padding == "same":
            images = pad(images, self.kernel_size, stride)
        kernel = ops.cast(ops.convert_to_tensor(self.kernel), images.dtype)
        features = _product(images, kernel, stride)
        return self.activation(features + ops.cast(self.bias, features.dtype))


# Files know the weights of a torso's convolutions by this name.
MatmulConv2D.__name__ = MatmulGradientConv2D.__name__ = "Conv2D"


def has_gpu():
    """True where Keras computes on a GPU."""
    return keras.distribution.list_devices()[0].startswith("gpu")


def _product(images, kernel, stride):
    """[B, h, w, F] of [B, H, W, C] and a kernel [size, size, C, F], without padding."""

    @ops.custom_gradient
    def convolution(images, kernel):
        def gradient(*args, upstream=None):
            return patch_gradients(images, kernel, stride, args[0] if args else upstream)

        return ops.conv(images, kernel, stride, "valid"), gradient

    return convolution(images, kernel)


def patch_gradients(images, kernel, stride, upstream):
    """The gradients of the images and of the kernel, from that of the features [B, h, w, F].

    Images are cut into blocks of stride x stride pixels. A patch is then `k` x `k` blocks, and
    patches lie one block apart.
    """
    size, _, channels, filters = kernel.shape
    k, (height, width) = size // stride, upstream.shape[1:3]
    used = [(side - 1) * stride + size for side in (height, width)]
    blocks = to_blocks(images[:, : used[0], : used[1]], stride)
    shifts = [(i, j) for i in range(k) for j in range(k)]
    patches = [blocks[:, i : i + height, j : j + width] for i, j in shifts]
    patches = ops.concatenate(patches, axis=-1) if k > 1 else blocks
    flat = ops.reshape(upstream, (-1, filters))
    # This way round, because XLA is slow where the longer matrix is transposed.
    product = ops.matmul(ops.transpose(flat), ops.reshape(patches, (-1, patches.shape[-1])))
    parts = ops.reshape(product, (filters, k, k, stride, stride, channels))
    kernel_gradient = ops.reshape(ops.transpose(parts, (1, 3, 2, 4, 5, 0)), kernel.shape)

    parts = ops.reshape(kernel, (k, stride, k, stride, channels, filters))
    matrix = ops.reshape(ops.transpose(parts, (5, 0, 2, 1, 3, 4)), (filters, -1))
    spread = ops.matmul(flat, matrix)
    spread = ops.reshape(spread, (-1, height, width, k, k, blocks.shape[-1]))
    total = 0.0
    for i, j in shifts:
        total = total + ops.pad(
            spread[:, :, :, i, j], [[0, 0], [i, k - 1 - i], [j, k - 1 - j], [0, 0]]
        )
    pixels = from_blocks(total, stride, channels)
    rest = [whole - part for whole, part in zip(images.shape[1:3], used, strict=True)]
    return ops.pad(pixels, [[0, 0], [0, rest[0]], [0, rest[1]], [0, 0]]), kernel_gradient


def pad(images, kernel_size, stride=1):
    """[B, H, W, C] with the zeros that "same" adds for [2] kernels of that size."""
    pads = []
    for side, size in zip(images.shape[1:3], kernel_size, strict=True):
        missing = max((-(-side // stride) - 1) * stride + size - side, 0)
        pads.append((missing // 2, missing - missing // 2))
    return ops.pad(images, ((0, 0), *pads, (0, 0)))


def to_blocks(images, side):
    """[B, H / side, W / side, side * side * C] of [B, H, W, C]."""
    if side == 1:
        return images
    _, height, width, channels = images.shape
    shape = (-1, height // side, width // side, side * channels)
    rows = [ops.reshape(images[:, row::side], shape) for row in range(side)]
    return ops.concatenate(rows, axis=-1)  # two thirds of a transposition's time


def from_blocks(blocks, side, channels):
    """The images of which `to_blocks` made the blocks."""
    if side == 1:
        return blocks
    _, height, width, _ = blocks.shape
    parts = ops.reshape(blocks, (-1, height, width, side, side, channels))
    parts = ops.transpose(parts, (0, 1, 3, 2, 4, 5))
    return ops.reshape(parts, (-1, height * side, width * side, channels))
