"""Convolutions of images in NumPy, for acting on the host."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided


class ConvolutionsForward:
    """The NumPy twin of a `NatureCNN`: [E, features] of images [E, H, W, C].

    Args:
        torso: The layer.
        place: Place of each weight in the list that is given to a call, by its id.
    """

    def __init__(self, torso: Any, place: Mapping[int, int]):
        self._torso = torso
        self._layers = [
            (layer, place[id(layer.kernel)], place[id(layer.bias)]) for layer in torso.convolutions
        ]

    def __call__(self, images: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
        """The features of images, with all weights of the network."""
        if self._torso.channels_first:
            images = np.moveaxis(images, 1, -1)
            images = images.reshape(*images.shape[:3], -1)
        divisor = self._torso.LARGEST_INTEGER if images.dtype.kind in "iu" else 1.0
        for layer, kernel, bias in self._layers:
            images = convolution(images, weights[kernel], layer.strides[0], layer.padding)
            if divisor != 1.0:
                images /= divisor
                divisor = 1.0
            images += weights[bias]
            np.maximum(images, 0.0, out=images)
        return images.reshape(len(images), -1)

    def use_one_thread(self) -> None:
        """Let NumPy's OpenBLAS multiply matrices in one thread, from now on in this process.

        Its threads wait for each other in a busy loop. Beside those of a learner, or of another
        process, NatureCNN then takes 50 ms instead of 0.4.
        """
        for path in Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"):
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(str(path)).scipy_openblas_set_num_threads64_(1)


def convolution(images: np.ndarray, kernel: np.ndarray, stride: int, padding: str) -> np.ndarray:
    """[E, h, w, F] float32 of images [E, H, W, C] and a kernel [size, size, C, F], square.

    With the padding "same" the stride is 1 and the size is odd.
    """
    size, _, channels, filters = kernel.shape
    if padding == "same":
        side = [size // 2, size // 2]
        images = np.pad(images, [[0, 0], side, side, [0, 0]])
    images = np.ascontiguousarray(images)
    height, width = ((side - size) // stride + 1 for side in images.shape[1:3])
    rows, (a, b, c, d) = len(images), images.strides
    shape = (rows, height, width, size, size, channels)
    patches = as_strided(images, shape, (a, stride * b, stride * c, b, c, d), writeable=False)
    flat = patches.reshape(rows * height * width, -1).astype(np.float32, copy=False)
    return flat.dot(kernel.reshape(-1, filters)).reshape(rows, height, width, filters)
