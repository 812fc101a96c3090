"""A sequence of tokens from another one: two stacks of LSTMs, with attention or without."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import KerasTensor, ops

HIDDEN = -1e4  # added to the attention that padding would get


class Memory(NamedTuple):
    """The decoder's view of a source."""

    outputs: Any  # [B, S, U] of the encoder's last layer
    absent: Any  # [B, 1, S] `HIDDEN` at padding, else 0
    states: Any  # (h [B, U], c [B, U]) of each layer, after the source


@keras.saving.register_keras_serializable(package="kytolly")
class SequenceToSequence(keras.Model):
    """Logits of the next token of a target, from the source and the tokens before.

    ([B, S], [B, T]) tokens, of which 0 is padding at the end -> [B, T, V] logits. Source and
    target share their tokens, and the output layer has the token vectors as its weights (Press &
    Wolf 2017, arXiv:1608.05859), so that a token that training never wrote has a place, too.
    Padding changes nothing. The LSTMs are Keras's: inside a compiled loop over updates they take
    1.15 times as long as an unrolled loop of matrix products, and compile in a fifth of the time.

    Args:
        vocabulary: V, padding included.
        dimension: Length of a token's vector.
        units: U, of each layer.
        layers: Of the encoder, and of the decoder.
        attention: Whether an output sees all places of the source (Luong et al. 2015,
            arXiv:1508.04025, "general", without input feeding); else the last states only.
        dropout: Share of the numbers of word vectors and outputs that are dropped where noise is
            given; the same ones at all places (Gal & Ghahramani 2016, arXiv:1512.05287). XLA draws
            numbers slowly on a CPU: a draw for every place took four fifths of an update.
    """

    def __init__(
        self,
        vocabulary: int,
        dimension: int = 256,
        units: int = 256,
        layers: int = 2,
        attention: bool = True,
        dropout: float = 0.3,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        self.vocabulary, self.dimension, self.units = vocabulary, dimension, units
        self.num_layers, self.attention, self.dropout = layers, attention, dropout
        self.embedding = keras.layers.Embedding(vocabulary, dimension)
        self.encoders = [make_lstm(units) for _ in range(layers)]
        self.decoders = [make_lstm(units) for _ in range(layers)]
        self.queries = keras.layers.Dense(units, use_bias=False) if attention else None
        self.merge = keras.layers.Dense(dimension, activation="tanh")

    def build(self, input_shape: tuple[int | None, ...] | None = None):
        self.embedding.build((None, None))
        for layers in (self.encoders, self.decoders):
            for place, layer in enumerate(layers):
                layer.build((None, None, self.units if place else self.dimension))
        if self.queries is not None:
            self.queries.build((None, None, self.units))
        self.merge.build((None, None, self.units * (1 + self.attention)))
        self.bias = self.add_weight((self.vocabulary,), "zeros", name="bias")
        self.built = True

    @property
    def parts(self):
        """The layers, always in the same order; `bias` is all that is beside them."""
        queries = [] if self.queries is None else [self.queries]
        return [self.embedding, *self.encoders, *self.decoders, *queries, self.merge]

    def call(self, source: KerasTensor, inputs: KerasTensor, training: bool = False):
        """Logits of the tokens that follow each of `inputs`."""
        return self.decode(inputs, self.encode(source))

    def encode(self, source: KerasTensor, noise: KerasTensor | None = None):
        """The memory of [B, S] tokens; `noise` [B, 1, D] from 0 to 1 decides what is dropped."""
        present = ops.not_equal(source, 0)
        vectors, states = self.drop(self.embedding(source), noise), []
        for layer in self.encoders:
            vectors, *state = layer(vectors, mask=present)
            states.append(tuple(state))
        absent = HIDDEN * (1.0 - ops.cast(present, self.compute_dtype))
        return Memory(vectors, absent[:, None], tuple(states))

    def decode(self, inputs: KerasTensor, memory: Memory, noise: KerasTensor | None = None):
        """[B, T, V] logits; `noise` [B, 1, D] from 0 to 1 decides what is dropped."""
        return self.logits(self.output_vectors(inputs, memory, noise))

    def output_vectors(self, inputs: KerasTensor, memory: Memory, noise: KerasTensor | None = None):
        """[B, T, D] what the logits after each of [B, T] tokens are made of."""
        return self.seen_outputs(self.outputs_after(inputs, memory), memory, noise)

    def outputs_after(self, inputs: KerasTensor, memory: Memory):
        """[B, T, U] outputs of the decoder's last layer after each of the tokens [B, T]."""
        vectors = self.embedding(inputs)
        for layer, state in zip(self.decoders, memory.states, strict=True):
            vectors = layer(vectors, initial_state=list(state))[0]
        return vectors

    def step(self, token: KerasTensor, states: list[list[KerasTensor]], memory: Memory):
        """[B, V] logits after one more token [B], and the states for the next step."""
        vector, after = self.embedding(token), []
        for layer, state in zip(self.decoders, states, strict=True):
            vector, state = layer.cell(vector, list(state))
            after.append(tuple(state))
        return self.logits(self.seen_outputs(vector[:, None], memory))[:, 0], tuple(after)

    def seen_outputs(self, outputs: KerasTensor, memory: Memory, noise: KerasTensor | None = None):
        """[B, T, D] from the outputs [B, T, U] of the decoder's last layer."""
        if self.queries is not None:
            keys = ops.transpose(memory.outputs, (0, 2, 1))
            weights = softmax(ops.matmul(self.queries(outputs), keys) + memory.absent)
            seen = ops.matmul(weights, memory.outputs)
            return self.drop(self.merge(ops.concatenate([outputs, seen], axis=-1)), noise)
        return self.drop(self.merge(outputs), noise)

    def logits(self, hidden: KerasTensor):
        """[..., V] logits from [..., D]."""
        table = ops.cast(self.embedding.embeddings, self.compute_dtype)
        return ops.matmul(hidden, ops.transpose(table)) + ops.cast(self.bias, self.compute_dtype)

    def drop(self, values: KerasTensor, noise: KerasTensor | None):
        """The values, without those whose noise is below the share, and the others larger."""
        if noise is None:
            return values
        mask = ops.cast(noise >= self.dropout, values.dtype)
        return values * mask / (1.0 - self.dropout)

    def get_config(self):
        names = ("vocabulary", "dimension", "units", "attention", "dropout")
        arguments = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **arguments, "layers": self.num_layers}


def softmax(values: KerasTensor):
    """Over the last axis. That of Keras warns where the axis is of length 1."""
    powers = ops.exp(values - ops.max(values, axis=-1, keepdims=True))
    return powers / ops.sum(powers, axis=-1, keepdims=True)


def make_lstm(units: int):
    """A layer that gives its outputs and its last states; cuDNN's kernel would not compile."""
    return keras.layers.LSTM(units, return_sequences=True, return_state=True, use_cudnn=False)
