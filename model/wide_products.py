"""Dense layers as a few wide products, for a GPU, where each kernel of a program costs a launch.

Layers side by side are one product. A bias is one more row of its kernel and reads a feature that
is always 1, so its gradient is part of the kernel's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kytolly.model.dense import SmallDense

MAX_WIDTH = 1_024  # outputs of a group of layers: wider ones have work enough in each kernel
MULTIPLE = 16  # of a matrix's rows: XLA fills others up by kernels of their own
ACTIVATIONS = {"linear", "relu", "tanh", "elu", "gelu", "silu", "leaky_relu"}  # 0 of 0


class Group(NamedTuple):
    """Dense layers side by side.

    Attributes:
        layers: In the order of their outputs.
        apart: Each layer reads a part of its own of the features, instead of all of them.
    """

    layers: tuple[Any, ...]
    apart: bool = False

    @property
    def inputs(self):
        """Features that the layers read."""
        rows = [layer.kernel.shape[0] for layer in self.layers]
        return sum(rows) if self.apart else rows[0]

    @property
    def rows(self) -> int:
        """Rows of the matrix: the features, one that is always 1, and zeros."""
        return self.inputs + 1 + -(self.inputs + 1) % MULTIPLE

    @property
    def outputs(self) -> int:
        """Numbers that the layers give."""
        return sum(layer.units for layer in self.layers)

    def places(self) -> list[tuple[slice, slice]]:
        """Rows and columns of each layer's kernel."""
        places, row, column = [], 0, 0
        for layer in self.layers:
            rows, columns = layer.kernel.shape
            places.append((slice(row, row + rows), slice(column, column + columns)))
            row, column = row + rows if self.apart else row, column + columns
        return places

    def matrix(self, kernels: Sequence, biases: Sequence, width: int):
        """[rows, width] with the kernels, the biases below them, and zeros."""
        if self.apart:
            blocks = [
                ops.pad(kernel, ((0, 0), (place.start, self.outputs - place.stop)))
                for kernel, (_, place) in zip(kernels, self.places(), strict=True)
            ]
            block = ops.concatenate(blocks, axis=0)
        else:
            block = ops.concatenate(kernels, axis=1)
        block = ops.concatenate([block, ops.concatenate(biases)[None]], axis=0)
        return ops.pad(block, ((0, self.rows - self.inputs - 1), (0, width - self.outputs)))

    def parts(self, matrix):
        """The kernels and the biases in a matrix."""
        places = self.places()
        kernels = [matrix[rows, columns] for rows, columns in places]
        return kernels, [matrix[self.inputs, columns] for _, columns in places]


def usable(groups: Sequence[Group]) -> bool:
    """True where the layers are such as are known here, and not so wide that nothing is gained."""
    layers = [layer for group in groups for layer in group.layers]
    known = all(
        known_kind(layer)
        and layer.bias is not None
        and layer.activation.__name__ in ACTIVATIONS
        and layer.activation is group.layers[0].activation
        for group in groups
        for layer in group.layers
    )
    return bool(layers) and known and max(group.outputs for group in groups) <= MAX_WIDTH


def known_kind(layer: keras.layers.Layer) -> bool:
    """True for Keras's dense layer and ours, but no other subclass."""
    if type(layer) in (keras.layers.Dense, SmallDense):
        return True
    from kytolly.model.noisy import NoisyDense

    return type(layer) is NoisyDense


def widths(groups: Sequence[Group]) -> list[int]:
    """Columns of each group's matrix: as many as the next one has rows."""
    last = groups[-1].outputs
    return [
        *(group.rows for group in groups[1:]),
        last + (-last % MULTIPLE if last > MULTIPLE else 0),
    ]


def wide_outputs(features, groups: Sequence[Group], matrices: Sequence):
    """[B, N] outputs of the last group's layers, from [B, F] features of the first.

    Args:
        features: What the first group reads.
        groups: One after the other.
        matrices: Those of the groups.
    """
    features = with_one(features, groups[0].rows)
    for group, following, matrix in zip(groups, [*groups[1:], None], matrices, strict=True):
        features = group.layers[0].activation(features @ ops.cast(matrix, features.dtype))
        if following is not None:
            one = np.zeros(following.rows, np.float32)
            one[group.outputs] = 1.0
            features = features + ops.cast(one, features.dtype)
    return features[:, : groups[-1].outputs]


def wide_head_outputs(network, obs, training: bool, matrices: Sequence):
    """[B, N] float32 outputs of each of a `QNetwork`'s `output_layers`, from [B, *obs]."""
    if network.torso is not None:
        obs = network.torso(obs, training=training)
    features = ops.cast(obs, network.compute_dtype)
    features = ops.reshape(features, (-1, math.prod(features.shape[1:])))
    outputs = ops.cast(wide_outputs(features, network.wide_groups(), matrices), "float32")
    ends = list(itertools.accumulate((h.units for h in network.output_layers()), initial=0))
    return [outputs[:, begin:end] for begin, end in itertools.pairwise(ends)]


def with_one(features, rows: int):
    """[B, rows] features, a one, and zeros."""
    one = ops.pad(ops.ones_like(features[:, :1]), ((0, 0), (0, rows - features.shape[1] - 1)))
    return ops.concatenate([features, one], axis=1)
