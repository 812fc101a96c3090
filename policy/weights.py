"""All trainable weights of a network as one vector, and what a step of that vector takes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from kytolly.environment.fusion_barrier import is_straight, on_gpu
from kytolly.policy.batch import Obs
from kytolly.policy.wide_form import WideWeights, takes_wide

if TYPE_CHECKING:
    from kytolly.policy.wide_weights import WideLayout

FEW_NUMBERS = 1_024  # numbers that are summed as they are
MANY_NUMBERS = 32_768  # of a vector whose rows are long: a tenth of the time of many short ones
ROW = 64  # numbers of a row that a long vector is broken into


Weights = list[tf.Tensor] | WideWeights  # `split` ones of a network
Noise = list[tf.Tensor]  # [B, N] of a noisy network's layers: their inputs and outputs in turn


class FlatWeights(tf.Module):
    """Calls a Keras network with weights that lie end to end in one variable [W].

    Entering a compiled program costs 12 to 30 microseconds for every variable that it assigns,
    and clipping and Adam are a few operations on a vector where they are dozens on single weights.
    The network's own variables are not touched until `publish` copies the vector into them.

    A noisy network has a subclass, `policy.noisy_weights.NoisyWeights`.

    `variable` [W] is for Keras optimizers that treat every number by itself, as Adam and SGD do
    (Muon and LAMB do not); `vector` is the same for TensorFlow.
    """

    noise_count = 0  # numbers of one draw of the network's noise

    def __init__(self, network: keras.Model, may_be_wide: bool = False):
        super().__init__(name="flat_weights")
        self.network, self._weights = network, tuple(network.trainable_variables)
        self._sizes = [math.prod(weight.shape) for weight in self._weights]
        self._may_be_wide = may_be_wide
        self.variable = keras.Variable(tf.zeros([sum(self._sizes)]), name="weights")
        self.vector: tf.Variable = self.variable.value
        self.take()

    @functools.cached_property
    def _wide(self) -> WideLayout | None:
        """The layout of the wide form; None where the network or its policy knows none."""
        from kytolly.policy.wide_weights import WideLayout

        return WideLayout.of(self.network, self._weights) if self._may_be_wide else None

    @property
    def _layout(self) -> WideLayout:
        """The layout of weights that have the wide form."""
        if self._wide is None:
            raise TypeError("the network has no wide products, expected a list of its weights")
        return self._wide

    def mean_deviation(self) -> tf.Tensor:
        """[] mean size of the deviations that noise makes; 0 without noise."""
        return tf.zeros([])

    def split(self, vector: tf.Tensor | tf.Variable) -> Weights:
        """The weights of the network from a vector [W], in the form that `call` takes."""
        parts = self.parts(vector)
        return self._wide.wide(parts) if on_gpu() and self._wide else parts

    def join(self, weights: Weights) -> tf.Tensor:
        """[W] float32 numbers of weights, or of their gradients, one after another."""
        if isinstance(weights, WideWeights) and not weights.others:
            return self._layout.join(weights)
        return concatenate(self.narrow(weights))

    def narrow(self, weights: Weights) -> list[tf.Tensor]:
        """The same weights, each in its shape."""
        if not isinstance(weights, WideWeights):
            return weights
        return self._layout.narrow(weights)

    def parts(self, vector: tf.Tensor | tf.Variable) -> list[tf.Tensor]:
        """The weights of the network, each in its shape, from a vector [W]."""
        parts = tf.split(tf.convert_to_tensor(vector), self._sizes)
        return [
            tf.cast(tf.reshape(part, weight.shape), weight.dtype)
            for part, weight in zip(parts, self._weights, strict=True)
        ]

    def call(
        self,
        weights: Weights,
        obs: Obs | Mapping[str, Any],
        function: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        """The outputs of the network, or of a function that calls it, with `split` weights.

        Nothing but the arguments decides about the outputs; `options` are the network's own, and
        `noise` for each row of a noisy one.
        """
        variables: Sequence[keras.Variable] = self._weights
        if isinstance(weights, WideWeights) and takes_wide(function or self.network.call):
            options["wide"] = weights.matrices
            variables = [variables[place] for place in self._layout.others]
            weights = weights.others
        mapping = list(zip(variables, self.narrow(weights), strict=True))
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = (function or self.network)(obs, **options)
        for variable in self.network.non_trainable_variables:  # such as batch statistics
            changed = scope.get_current_value(variable)
            if changed is not None:
                variable.assign(changed)
        return outputs

    def noisy_weights(self, weights: Weights, numbers: tf.Tensor) -> Weights:
        """The weights themselves: only `NoisyWeights` have noise."""
        return weights

    def drawn_weights(self, weights: Weights, draws: Sequence[tf.Tensor], draw: int) -> Weights:
        """The weights themselves, as in `noisy_weights`."""
        return weights

    def row_noise(
        self, weights: Weights, numbers: tf.Tensor | None
    ) -> tuple[Weights, Noise | None]:
        """The weights themselves, and no noise."""
        return weights, None

    def publish(self, vector: tf.Variable | None = None) -> None:
        """Copy the vector, or another one [W], into the Keras network."""
        parts = self.parts(self.vector if vector is None else vector)
        for weight, part in zip(self._weights, parts, strict=True):
            weight.assign(part)

    def take(self) -> None:
        """Copy the Keras network into the vector."""
        self.vector.assign(concatenate([weight.value for weight in self._weights]))


def concatenate(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """[W] float32 numbers of several tensors, one after another.

    XLA on a CPU divides a long concatenation among cores; each passes over all of it for each part.
    """
    flat = [tf.reshape(tf.cast(part, tf.float32), [-1]) for part in parts]
    ends = [0, *itertools.accumulate(part.shape[0] for part in flat)]
    if flat and (ends[-1] <= MANY_NUMBERS or is_straight()):
        return tf.concat(flat, axis=0)
    vector, write = tf.zeros(ends[-1:]), tf.raw_ops.TensorStridedSliceUpdate
    for (start, end), part in zip(itertools.pairwise(ends), flat, strict=True):
        vector = write(input=vector, begin=[start], end=[end], strides=[1], value=part)
    return vector


def clip_factor(norm: tf.Tensor, max_norm: tf.Tensor | float) -> tf.Tensor:
    """[] what a gradient of that norm is multiplied by, so that its norm is at most `max_norm`.

    Source: Pascanu, Mikolov & Bengio 2013, arXiv:1211.5063, algorithm 1.
    """
    return tf.minimum(1.0, max_norm / tf.maximum(norm, 1e-12))


def squared_norm(tensor: tf.Tensor) -> tf.Tensor:
    """[] sum of squares.

    The rows are summed by a product with ones: XLA on a CPU vectorizes that, and turns a plain
    sum over all elements into a chain of additions (12 microseconds for 120 x 84 instead of 2).
    """
    squares = tf.square(tf.cast(tensor, tf.float32))
    if len(tensor.shape) < 2:
        size = tensor.shape.num_elements()
        if size <= FEW_NUMBERS:
            return tf.reduce_sum(squares)
        squares = tf.reshape(tf.pad(squares, [[0, -size % ROW]]), [-1, ROW])
        if size > MANY_NUMBERS:
            wide = tf.reshape(squares, [ROW, -1])
            return tf.reduce_sum(tf.matmul(wide, tf.ones([wide.shape[1], 1])))
    rows = tf.reshape(squares, [-1, squares.shape[-1]])
    return tf.reduce_sum(tf.matmul(tf.ones([1, rows.shape[0]]), rows))
