"""Dense layers, and what their calls take."""

from __future__ import annotations

import keras


@keras.saving.register_keras_serializable(package="kytolly", name="FewUnits")
class SmallDense(keras.layers.Dense):
    """A dense layer computed unit by unit, the same function as `keras.layers.Dense`.

    For a handful of units XLA's matrix product on a CPU is slow in the backward pass: 20
    microseconds for [128, 84] x [84, 2], and 5 as products with one column each.
    """

    MAX_UNITS = 4  # with more, one product is as fast

    def call(self, features, training: bool | None = None):
        if features.shape[0] == 1:  # acting: one product, and no backward pass
            return super().call(features)
        columns = [features @ self.kernel[:, unit : unit + 1] for unit in range(self.units)]
        values = keras.ops.concatenate(columns, axis=-1)
        values = values + keras.ops.cast(self.bias, values.dtype)
        return values if self.activation is None else self.activation(values)


SmallDense.__name__ = "FewUnits"  # by which files know it


def dense(units: int, activation: str | None = None, **options):
    """Dense layer, small or not."""
    kind = SmallDense if units <= SmallDense.MAX_UNITS else keras.layers.Dense
    return kind(units, activation, **options)


def noise_option(noise):
    """The options of a layer's call where its weights have noise; see `model.noisy.RowNoise`."""
    return {} if noise is None else {"noise": noise}
