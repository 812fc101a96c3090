"""Dense layers of networks, and their weights at the start."""

from __future__ import annotations

import math

import keras


@keras.saving.register_keras_serializable(package="kytolly", name="FewUnits")
class SmallDense(keras.layers.Dense):
    """A dense layer computed unit by unit, the same function as `keras.layers.Dense`.

    For a handful of units XLA's matrix product on a CPU is slow in the backward pass: 20
    microseconds for [128, 84] x [84, 2], and 5 as products with one column each.
    """

    MAX_UNITS = 4  # with more, one product is as fast

    def call(self, features, training=None):
        if features.shape[0] == 1:  # acting: one product, and no backward pass
            return super().call(features)
        columns = [features @ self.kernel[:, unit : unit + 1] for unit in range(self.units)]
        values = keras.ops.concatenate(columns, axis=-1)
        values = values + keras.ops.cast(self.bias, values.dtype)
        return values if self.activation is None else self.activation(values)


SmallDense.__name__ = "FewUnits"  # by which files know it


def dense(units, activation=None, **options):
    """Dense layer, small or not."""
    kind = SmallDense if units <= SmallDense.MAX_UNITS else keras.layers.Dense
    return kind(units, activation, **options)


def fan_in_dense(units, fan_in, activation=None, noise_scale=0.0):
    """Dense layer whose kernel and bias begin uniform in +-1/sqrt(fan_in).

    Above a scale of 0 it is noisy.

    Keras's zero biases make a ReLU network homogeneous: its values first grow with the size of
    the observation, which is the wrong way round for every task that ends far from the origin.
    """
    bound = 1.0 / math.sqrt(fan_in)
    kernel, bias = (keras.initializers.RandomUniform(-bound, bound) for _ in range(2))
    initializers = {"kernel_initializer": kernel, "bias_initializer": bias}
    if noise_scale:
        from kytolly.model.noisy import NoisyDense

        return NoisyDense(units, activation, noise_scale, **initializers)
    return dense(units, activation, **initializers)


def noise_option(noise):
    """What the call of a layer takes where its weights have noise; see `model.noisy.RowNoise`."""
    return {} if noise is None else {"noise": noise}


@keras.saving.register_keras_serializable(package="kytolly")
class HiddenLayers(keras.layers.Layer):
    """Flattens an observation and passes it through dense ReLU layers: [B, *obs] -> [B, units]."""

    def __init__(self, hidden_units=(120, 84), noise_scale=0.0, **kwargs):
        super().__init__(**kwargs)
        self.hidden_units, self.noise_scale, self.dense = tuple(hidden_units), noise_scale, []

    def build(self, input_shape):
        width = math.prod(input_shape[1:])
        for units in self.hidden_units:
            self.dense.append(fan_in_dense(units, width, "relu", self.noise_scale))
            self.dense[-1].build((None, width))
            width = units

    def compute_output_shape(self, input_shape):
        widths = (math.prod(input_shape[1:]), *self.hidden_units)
        return (input_shape[0], widths[-1])

    def call(self, obs, noise=None):
        features = keras.ops.cast(obs, self.compute_dtype)
        features = keras.ops.reshape(features, (-1, math.prod(features.shape[1:])))
        for layer in self.dense:
            features = layer(features, **noise_option(noise))
        return features
