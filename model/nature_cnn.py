"""The convolutional torso for images."""

from __future__ import annotations

import keras


@keras.saving.register_keras_serializable(package="kytolly")
class NatureCNN(keras.layers.Layer):
    """Features of an image: [B, H, W, C] uint8 or float -> [B, features].

    Integer images are divided by 255. Images smaller than 36 pixels a side keep their resolution
    longer (stride 1, padding), so that small games work too.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """

    LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # filters, kernel, stride

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.convolutions: list[keras.layers.Layer] = []

    def build(self, input_shape):
        if len(input_shape) != 4:
            raise ValueError(
                f"NatureCNN got observations of shape {tuple(input_shape[1:])}, expected "
                "(height, width, channels). Use network='mlp' for vectors, or add a channel axis."
            )
        shape, small = tuple(input_shape), min(input_shape[1:3]) < 36
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
        small, size = min(input_shape[1:3]) < 36, list(input_shape[1:3])
        if not small:
            for _, kernel, stride in self.LAYERS:
                size = [(side - kernel) // stride + 1 for side in size]
        return (input_shape[0], size[0] * size[1] * self.LAYERS[-1][0])

    def call(self, obs):
        integer = keras.backend.standardize_dtype(obs.dtype).startswith(("uint", "int"))
        features = keras.ops.cast(obs, self.compute_dtype)
        if integer:
            features = features / 255.0
        for layer in self.convolutions:
            features = layer(features)
        return keras.ops.reshape(features, (-1, features.shape[1] * features.shape[2] * 64))
