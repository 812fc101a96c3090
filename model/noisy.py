"""Dense layers whose weights have noise of a learned size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import keras
from keras import ops

from kytolly.model.dense import SmallDense

Tensor = keras.KerasTensor  # or a backend's
RowNoise = Mapping[int, tuple[Tensor, Tensor]]  # e_in [E, F] and e_out [E, units] by a layer's id


@keras.saving.register_keras_serializable(package="kytolly")
class NoisyDense(SmallDense):
    """A dense layer with a deviation beside each weight: the noise's size, which is learned.

    Called without noise, it has none: so it is evaluated, exported and loaded. Whoever learns or
    explores adds deviation times noise, e_in[i] e_out[j] for the kernel and e_out[j] for the bias:
    to the weights, where one draw is for all rows, or by the call's `RowNoise`.

    Args:
        noise_scale: Deviations are this over the root of the inputs at first.

    Source: Fortunato et al. 2018, arXiv:1706.10295, section 3, factorised Gaussian noise.
    """

    def __init__(
        self, units: int, activation: str | None = None, noise_scale: float = 0.5, **kwargs
    ):
        super().__init__(units, activation, **kwargs)
        self.noise_scale = noise_scale

    def build(self, input_shape):
        super().build(input_shape)
        first = keras.initializers.Constant(self.noise_scale / math.sqrt(input_shape[-1]))
        shapes = {
            "kernel_deviation": (input_shape[-1], self.units),
            "bias_deviation": (self.units,),
        }
        for name, shape in shapes.items():
            setattr(self, name, self.add_weight(shape=shape, initializer=first, name=name))

    def call(self, features, training: bool | None = None, noise=None):
        if noise is not None:
            return self.noisy_outputs(features, *noise[id(self)])
        if self.units <= self.MAX_UNITS:
            return super().call(features)
        return keras.layers.Dense.call(self, features)

    def noisy_outputs(self, features, noise_in, noise_out):
        """[R, units] of features [R, F], each row with its own noise [E, F] and [E, units].

        Where `R` is a multiple of `E`, so many rows in turn have the same noise.
        """
        noise_in, noise_out = (
            ops.cast(repeat_rows(noise, features), features.dtype)
            for noise in (noise_in, noise_out)
        )
        mean = features @ self.kernel + self.bias
        noise = (features * noise_in) @ self.kernel_deviation + self.bias_deviation
        return self.activation(mean + noise * noise_out)

    def save_own_variables(self, store):
        keras.layers.Layer.save_own_variables(self, store)  # a dense layer knows two weights only

    def load_own_variables(self, store):
        keras.layers.Layer.load_own_variables(self, store)

    def get_config(self):
        return {**super().get_config(), "noise_scale": self.noise_scale}


def noisy_layers(network):
    """The noisy layers of a network, in the order of its weights."""
    return [layer for layer in network._flatten_layers() if isinstance(layer, NoisyDense)]


def noise_widths(layers):
    """The numbers of noise that each layer takes, for its inputs and its outputs in turn."""
    return [int(width) for layer in layers for width in layer.kernel.shape]


def merged_streams(features, state, advantage):
    """[B, A Z] float32 sums of a state's numbers and centered advantages, by one product.

    The streams' kernels are added in place of their outputs, which are several times as many.

    Args:
        features: [B, F].
        state: Layer of the Z numbers of the state.
        advantage: Layer of the A Z numbers of the actions.
    """

    def merged_weights(one, all_actions):
        # Parts side by side: of a reshape XLA makes a division for each number.
        starts = range(0, advantage.units, state.units)
        parts = [all_actions[..., start : start + state.units] for start in starts]
        center = one - sum(parts) / len(parts)
        return ops.concatenate([center + part for part in parts], axis=-1)

    outputs = features @ ops.cast(merged_weights(state.kernel, advantage.kernel), features.dtype)
    bias = merged_weights(state.bias, advantage.bias)  # in the layer's format, within a model
    return ops.cast(outputs, "float32") + ops.cast(bias, "float32")


def row_noise(layers: Sequence[NoisyDense], noises: Sequence[Tensor]) -> RowNoise:
    """Noise of a network's call, from e_in [E, F] and e_out [E, units] of each layer in turn."""
    pairs = zip(noises[::2], noises[1::2], strict=True)
    return {id(layer): pair for layer, pair in zip(layers, pairs, strict=True)}


def repeat_rows(noise, features):
    """Noise [E, N], each row as often as makes as many rows as the features have."""
    rows, count = features.shape[0], noise.shape[0]
    if rows is not None and rows == count:
        return noise
    return ops.repeat(noise, ops.shape(features)[0] // ops.shape(noise)[0], axis=0)
