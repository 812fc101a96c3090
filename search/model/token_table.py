"""Vectors of tokens, of which some learn and the others stay."""

from __future__ import annotations

import keras
import numpy as np
from keras import KerasTensor, ops


@keras.saving.register_keras_serializable(package="kytolly")
class TokenTable(keras.layers.Layer):
    """A vector of each token: [...] tokens -> [..., D].

    An optimizer moves every number that learns in each update, and keeps two more for it. So only
    the first tokens learn, which are those of the training texts; the others, which no gradient
    would reach, keep their vectors in float16.

    Args:
        vocabulary: Number of tokens.
        dimension: D.
        learned: How many tokens learn, the first ones; None: all, unless `trainable` is false.
    """

    def __init__(
        self, vocabulary: int, dimension: int, learned: int | None = None, **kwargs: object
    ):
        super().__init__(**kwargs)
        self.vocabulary, self.dimension, self.learned = vocabulary, dimension, learned
        self.embeddings = self.fixed = None

    @property
    def num_first(self):
        """Number of tokens whose vectors are in `embeddings`."""
        return self.vocabulary if self.learned is None else self.learned

    def build(self, input_shape: tuple[int | None, ...]):
        first, others = self.num_first, self.vocabulary - self.num_first
        if first:
            self.embeddings = self.add_weight(
                (first, self.dimension), "uniform", name="embeddings", autocast=False
            )
        if others:
            self.fixed = self.add_weight(
                (others, self.dimension),
                initializer="zeros",
                dtype="float16",
                trainable=False,
                autocast=False,
                name="fixed",
            )
        self.built = True

    def call(self, tokens: KerasTensor):
        """Vectors, in the layer's precision."""
        first = self.num_first
        if self.fixed is None:
            return ops.cast(ops.take(self.embeddings, tokens, axis=0), self.compute_dtype)
        if self.embeddings is None:
            return ops.cast(ops.take(self.fixed, tokens, axis=0), self.compute_dtype)
        learns, zero = tokens < first, ops.zeros_like(tokens)
        learned = ops.take(self.embeddings, ops.where(learns, tokens, zero), axis=0)
        others = ops.take(self.fixed, ops.where(learns, zero, tokens - first), axis=0)
        learned, others = (ops.cast(part, self.compute_dtype) for part in (learned, others))
        return ops.where(learns[..., None], learned, others)

    def assign(self, table: np.ndarray):
        """Set the vectors [vocabulary, D] of all tokens."""
        if self.embeddings is not None:
            self.embeddings.assign(table[: self.num_first])
        if self.fixed is not None:
            self.fixed.assign(ops.cast(table[self.num_first :], "float16"))

    def get_config(self):
        names = "vocabulary", "dimension", "learned"
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
