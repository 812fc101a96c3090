"""The weights of a network in the form of its wide products, for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.model.wide_products import Group, usable, widths
from kytolly.policy.wide_form import WideWeights, takes_wide


class WideLayout:
    """The places of a network's weights in its `WideWeights`.

    Args:
        groups: The network's groups of layers.
        weights: All trainable ones of the network.
    """

    def __init__(self, groups: Sequence[Group], weights: Sequence[keras.Variable]):
        self.groups = groups
        index = {id(weight): place for place, weight in enumerate(weights)}
        self.shapes = [tuple(weight.shape) for weight in weights]
        self.is_noisy = all(hasattr(layer, NOISY) for group in groups for layer in group.layers)
        names = (("kernel", "bias"), ("kernel_deviation", "bias_deviation"))
        self.places = [
            [
                [index[id(getattr(layer, name))] for name in pair for layer in group.layers]
                for group in groups
            ]
            for pair in (names if self.is_noisy else names[:1])
        ]
        used = {place for sort in self.places for places in sort for place in places}
        self.others = [place for place in range(len(weights)) if place not in used]

    @classmethod
    def of(cls, network: keras.Model, weights: Sequence[keras.Variable]) -> WideLayout | None:
        """The layout of a network; None where its call does not know wide products."""
        if not takes_wide(network.call):
            return None
        groups, known = network.wide_groups(), {id(weight) for weight in weights}
        layers = [layer for group in groups for layer in group.layers]
        learned = all({id(layer.kernel), id(layer.bias)} <= known for layer in layers)
        return cls(groups, weights) if usable(groups) and learned else None

    def wide(self, parts: Sequence[tf.Tensor]) -> WideWeights:
        """The wide form of all weights."""
        matrices, deviations = [
            [
                self.matrix(index, [parts[place] for place in places])
                for index, places in enumerate(sort)
            ]
            for sort in [*self.places, []][:2]
        ]
        return WideWeights(matrices, deviations, [parts[place] for place in self.others])

    def matrix(self, index: int, parts: Sequence[tf.Tensor]) -> Any:
        """[K, N] of a group, from numbers for its kernels and then for its biases."""
        count = len(parts) // 2
        return self.groups[index].matrix(parts[:count], parts[count:], widths(self.groups)[index])

    def narrow(self, weights: WideWeights) -> list[tf.Tensor]:
        """All weights in their own form."""
        parts: dict[int, Any] = dict(zip(self.others, weights.others, strict=True))
        for sort, matrices in zip(self.places, weights[:2], strict=False):
            for group, places, matrix in zip(self.groups, sort, matrices, strict=True):
                kernels, biases = group.parts(matrix)
                parts.update(zip(places, [*kernels, *biases], strict=True))
        return [parts[place] for place in range(len(self.shapes))]

    def join(self, weights: WideWeights) -> tf.Tensor:
        """[W] numbers of all weights, one after another.

        Gathered, as XLA would make a kernel of every slice of a gradient.
        """
        flat = [tf.reshape(part, [-1]) for part in tf.nest.flatten(weights)]
        return tf.gather(tf.concat(flat, axis=0), self.index(weights))

    def index(self, weights: WideWeights) -> np.ndarray:
        """[W] int32 place of each number among those of the wide form."""
        sizes = [part.shape.num_elements() for part in tf.nest.flatten(weights)]
        places = np.split(np.arange(sum(sizes), dtype=np.int32), np.cumsum(sizes)[:-1])
        shaped = [
            place.reshape(part.shape)
            for place, part in zip(places, tf.nest.flatten(weights), strict=True)
        ]
        numbers = self.narrow(tf.nest.pack_sequence_as(weights, shaped))
        return np.concatenate([np.asarray(part).ravel() for part in numbers])


NOISY = "kernel_deviation"  # weight of a layer whose weights have noise
