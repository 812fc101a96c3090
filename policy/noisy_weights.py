"""The weights of a network some of which have noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kytolly.environment.fusion_barrier import loop_fusion_barrier
from kytolly.model.noisy import noise_widths, noisy_layers, row_noise
from kytolly.policy.batch import Obs
from kytolly.policy.continuous import standard_normal
from kytolly.policy.weights import FlatWeights, RowNoise, Weights, concatenate


class NoisyWeights(FlatWeights):
    """Weights of a network with `NoisyDense` layers, which get noise of `noise_count` numbers."""

    def __init__(self, network: keras.Model):
        super().__init__(network)
        self.layers = noisy_layers(network)
        if not self.layers:
            raise ValueError(
                f"noisy is set, and the model {network.name!r} has no noisy layers, expected some: "
                "use kytolly.model.noisy.NoisyDense in place of keras.layers.Dense, or leave noisy "
                "out."
            )
        place = {id(weight): index for index, weight in enumerate(self._weights)}
        self._places = [
            [place[id(getattr(layer, name))] for name in PARTS] for layer in self.layers
        ]
        self._widths: list[int] = noise_widths(self.layers)
        self.noise_count = sum(self._widths)

    def noisy_weights(self, weights: list[tf.Tensor], numbers: tf.Tensor) -> list[tf.Tensor]:
        """Weights with one draw of noise, from [N] numbers in [0, 1)."""
        noises, changed = self._noises(numbers), list(weights)
        for index, places in enumerate(self._places):
            kernel, bias, kernel_deviation, bias_deviation = (weights[place] for place in places)
            noise_in, noise_out = noises[2 * index : 2 * index + 2]
            both = noise_in[:, tf.newaxis] * noise_out
            changed[places[0]] = kernel + kernel_deviation * tf.cast(both, kernel.dtype)
            changed[places[1]] = bias + bias_deviation * tf.cast(noise_out, bias.dtype)
        return changed

    def row_weights(self, weights: list[tf.Tensor], numbers: tf.Tensor) -> Weights:
        """Weights with a draw of noise for each of B rows, from [B, N] numbers in [0, 1)."""
        if numbers.shape[0] == 1:  # one draw for the whole rollout costs nothing in its steps
            return self.noisy_weights(weights, numbers[0])
        return RowNoise(weights, self._noises(numbers))

    def call(
        self,
        weights: Weights,
        obs: Obs,
        function: Callable[..., Any] | None = None,
        **options: bool | tf.Tensor,
    ) -> Any:
        """As for all weights; with `RowNoise` each row has its own noise."""
        if not isinstance(weights, RowNoise):
            return super().call(weights, obs, function, **options)
        with row_noise(self.layers, weights.noises):
            return super().call(weights.weights, obs, function, **options)

    def mean_deviation(self) -> tf.Tensor:
        """[] mean size of the deviations."""
        weights = self.split(self.vector)
        parts = [weights[place] for places in self._places for place in places[2:]]
        return tf.reduce_mean(tf.abs(concatenate(parts)))

    def _noises(self, numbers: tf.Tensor) -> list[tf.Tensor]:
        # Else XLA would compute the noise of an input anew for every weight, and an update would
        # take six times as long.
        always = tf.reshape(numbers, [-1])[0] >= 0.0
        noise = loop_fusion_barrier(factor_noise(standard_normal(numbers)), always)
        return tf.split(noise, self._widths, axis=-1)


PARTS = ("kernel", "bias", "kernel_deviation", "bias_deviation")


def factor_noise(normal: tf.Tensor) -> tf.Tensor:
    """Noise whose products with itself are the noise of kernels: sign(x) sqrt(|x|).

    Args:
        normal: Standard normal numbers.

    Source: Fortunato et al. 2018, arXiv:1706.10295, equations 10 and 11.
    """
    return tf.sign(normal) * tf.sqrt(tf.abs(normal))
