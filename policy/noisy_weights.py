"""The weights of a network some of which have noise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from kytolly.environment.fusion_barrier import loop_fusion_barrier, on_gpu
from kytolly.model.dqn_mlp import QNetwork
from kytolly.model.noisy import noise_widths, noisy_layers, row_noise
from kytolly.policy.batch import Obs
from kytolly.policy.continuous import standard_normal
from kytolly.policy.weights import FlatWeights, Noise, Weights, WideWeights, concatenate

if TYPE_CHECKING:
    from kytolly.policy.wide_weights import WideLayout


class NoisyWeights(FlatWeights):
    """Weights of a network with `NoisyDense` layers, which get noise of `noise_count` numbers."""

    def __init__(self, network: keras.Model, may_be_wide: bool = False):
        super().__init__(network, may_be_wide)
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

    def noisy_weights(self, weights: Weights, numbers: tf.Tensor) -> Weights:
        """Weights with one draw of noise, from [N] numbers in [0, 1)."""
        return self.with_noise(weights, self.noise(numbers))

    def drawn_weights(self, weights: Weights, draws: Sequence[tf.Tensor], draw: int) -> Weights:
        """Weights with one of several draws of noise, from [N] numbers in [0, 1) for each."""
        if not on_gpu():
            return self.noisy_weights(weights, draws[draw])
        # All draws in one tensor: XLA then makes the weights of two networks in one kernel.
        return self.with_noise(weights, [noise[draw] for noise in self.noise(tf.stack(draws))])

    def with_noise(self, weights: Weights, noises: Noise) -> Weights:
        """Weights with one draw of noise: [N] of each layer's inputs and outputs in turn."""
        if isinstance(weights, WideWeights):
            return weights._replace(matrices=self._noisy_matrices(self._layout, weights, noises))
        changed = list(self.narrow(weights))
        for index, places in enumerate(self._places):
            kernel, bias, kernel_deviation, bias_deviation = (changed[place] for place in places)
            noise_in, noise_out = noises[2 * index : 2 * index + 2]
            both = noise_in[:, tf.newaxis] * noise_out
            changed[places[0]] = kernel + kernel_deviation * tf.cast(both, kernel.dtype)
            changed[places[1]] = bias + bias_deviation * tf.cast(noise_out, bias.dtype)
        return changed

    def _noisy_matrices(
        self, layout: WideLayout, weights: WideWeights, noises: Noise
    ) -> list[tf.Tensor]:
        pairs = zip(noises[::2], noises[1::2], strict=True)
        by_layer = dict(zip(map(id, self.layers), pairs, strict=True))
        matrices = []
        for index, group in enumerate(layout.groups):
            pairs = [by_layer[id(layer)] for layer in group.layers]
            kernels = [noise_in[:, tf.newaxis] * noise_out for noise_in, noise_out in pairs]
            noise = layout.matrix(index, [*kernels, *(noise_out for _, noise_out in pairs)])
            matrices.append(weights.matrices[index] + weights.deviations[index] * noise)
        return matrices

    def row_noise(
        self, weights: Weights, numbers: tf.Tensor | None
    ) -> tuple[Weights, Noise | None]:
        """Weights, and noise for each of B rows, from [B, N] numbers in [0, 1)."""
        if numbers is None:
            return weights, None
        if numbers.shape[0] == 1:  # one draw for the whole rollout costs nothing in its steps
            return self.noisy_weights(weights, numbers[0]), None
        return self.narrow(weights), self.noise(numbers)

    def call(
        self,
        weights: Weights,
        obs: Obs,
        function: Callable[..., Any] | None = None,
        noise: Noise | None = None,
        **options: Any,
    ) -> Any:
        """As for all weights; with [B, N] noise each row has its own."""
        if noise is None:
            return super().call(weights, obs, function, **options)
        if takes_row_noise(self.network):
            by_layer = row_noise(self.layers, noise)
            return super().call(weights, obs, function, noise=by_layer, **options)

        def row_outputs(row: tuple[Obs, Noise]) -> Any:  # a network of the user's knows no noise
            row_obs = tf.nest.map_structure(lambda part: part[tf.newaxis], row[0])
            outputs = super(NoisyWeights, self).call(
                self.with_noise(weights, row[1]), row_obs, function, **options
            )
            return tf.nest.map_structure(lambda part: part[0], outputs)

        return tf.vectorized_map(row_outputs, (obs, list(noise)))

    def mean_deviation(self) -> tf.Tensor:
        """[] mean size of the deviations."""
        weights = self.parts(self.vector)
        parts = [weights[place] for places in self._places for place in places[2:]]
        return tf.reduce_mean(tf.abs(concatenate(parts)))

    def noise(self, numbers: tf.Tensor) -> Noise:
        """[..., N] noise of each layer's inputs and outputs in turn, from numbers in [0, 1)."""
        # Else XLA would compute the noise of an input anew for every weight, and an update would
        # take six times as long.
        always = tf.reshape(numbers, [-1])[0] >= 0.0
        noise = loop_fusion_barrier(factor_noise(standard_normal(numbers)), always)
        return tf.split(noise, self._widths, axis=-1)


def takes_row_noise(network: keras.Model) -> bool:
    """True where the `noise` of a network's call reaches all of its noisy layers.

    It does in networks of ours, unless a torso of the user's has such layers too, or a subclass
    of the user's has a method without `noise`.
    """
    if not isinstance(network, QNetwork):
        return False
    methods = [getattr(network, name, None) for name in NOISE_METHODS]
    if any(method and "noise" not in inspect.signature(method).parameters for method in methods):
        return False
    return network.torso is None or not noisy_layers(network.torso)


NOISE_METHODS = ("call", "features", "action_distributions", "action_quantiles")
PARTS = ("kernel", "bias", "kernel_deviation", "bias_deviation")


def factor_noise(normal: tf.Tensor) -> tf.Tensor:
    """Noise whose products with itself are the noise of kernels: sign(x) sqrt(|x|).

    Args:
        normal: Standard normal numbers.

    Source: Fortunato et al. 2018, arXiv:1706.10295, equations 10 and 11.
    """
    return tf.sign(normal) * tf.sqrt(tf.abs(normal))
