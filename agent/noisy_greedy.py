"""Acting while learning by noise in the network's weights, on the host as well."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from kytolly.agent.exploration import EpsilonGreedy
from kytolly.model.noisy import noise_widths, noisy_layers
from kytolly.model.numpy_inference import NumpyNetwork, ordered_weights

if TYPE_CHECKING:
    from kytolly.agent.acting import HostActor, HostObs
    from kytolly.agent.exploration import HostParams


class NoisyGreedy(EpsilonGreedy):
    """The best action by weights with noise, or with probability epsilon any one.

    Each environment has its own noise, which stays for a rollout: the paper acts with one set of
    weights between two phases of learning. It has no epsilon; with `epsilon_start` and
    `epsilon_final` 0 there is none once learning has begun.

    Source: Fortunato et al. 2018, arXiv:1706.10295, section 3.1.
    """

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> list[Any]:
        """The noise that `host_action` takes for each of the `T` steps of a `shape` (T, E)."""
        network = HostNoise(int(rng.integers(2**63)))
        return [(*noise, network) for noise in super().host_noise(rng, shape, state)]

    def host_action(
        self, params: HostParams, obs: HostObs, noise: tuple[np.ndarray, np.ndarray, HostNoise]
    ) -> np.ndarray:
        """[E] actions for [E, *obs]; `params` gives [E, A] values with noise."""
        explores, action, network = noise
        return super().host_action(
            functools.partial(params, noise=network), obs, (explores, action)
        )


class HostNoise:
    """The noise of a rollout's weights, for each environment, drawn when it is first needed."""

    def __init__(self, seed: int):
        self.seed, self._noisy_network, self._numbers = seed, None, None
        self._envs, self._total = slice(None), 0

    def of_rows(self, envs: slice, total: int) -> HostNoise:
        """The same noise where only some of all environments are."""
        self._envs, self._total = envs, total
        return self

    def params(self, actor: HostActor, obs: HostObs) -> np.ndarray:
        """[E, P] params of observations [E, *obs], by the network of a `HostActor`."""
        rows = len(keras.tree.flatten(obs)[0])
        if actor.numpy_network is None:
            if self._numbers is None:
                layers = noisy_layers(actor.network)
                self._numbers = np.concatenate(self.draw(rows, noise_widths(layers)), axis=-1)
            return actor.network_outputs(obs, self._numbers)
        if self._noisy_network is None:
            self._noisy_network = noisy_network(actor.numpy_network, actor.network, self.draw, rows)
        return self._noisy_network(obs)

    def draw(self, rows: int, widths: list[int]) -> list[np.ndarray]:
        """[E, N] noise of each layer's inputs and outputs in turn."""
        numbers = np.random.default_rng(self.seed).standard_normal(
            (self._total or rows, sum(widths)), np.float32
        )[self._envs]
        noise = np.sign(numbers) * np.sqrt(np.abs(numbers))
        return np.split(noise, np.cumsum(widths)[:-1], axis=-1)


def noisy_network(
    inference: NumpyNetwork,
    network: keras.Model,
    draw: Callable[[int, list[int]], list[np.ndarray]],
    rows: int,
) -> NumpyNetwork:
    """A network in NumPy whose weights have noise, other noise for each of so many rows."""
    layers = noisy_layers(network)
    index_of = {id(weight): index for index, weight in enumerate(ordered_weights(network))}
    noises, weights = draw(rows, noise_widths(layers)), list(inference.weights)
    for index, layer in enumerate(layers):
        noise_in, noise_out = noises[2 * index : 2 * index + 2]
        both = noise_in[:, :, np.newaxis] * noise_out[:, np.newaxis]
        kernel, bias = index_of[id(layer.kernel)], index_of[id(layer.bias)]
        deviations = index_of[id(layer.kernel_deviation)], index_of[id(layer.bias_deviation)]
        kernels = inference.weights[kernel] + inference.weights[deviations[0]] * both
        biases = inference.weights[bias] + inference.weights[deviations[1]] * noise_out
        # One row is a network like any other; several are products of stacks of matrices.
        weights[kernel], weights[bias] = (kernels[0], biases[0]) if rows == 1 else (kernels, biases)
    return inference.with_weights(weights)
