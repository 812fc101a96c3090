"""A sequence-to-sequence network as a policy over the next token, with a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import KerasTensor, ops

from kytolly.search.model.sequence_to_sequence import SequenceToSequence


@keras.saving.register_keras_serializable(package="kytolly")
class TokenActorCritic(SequenceToSequence):
    """Logits [B, V] of the token that is written next, and a value [B].

    It reads a dict of `source` [B, S] tokens and `written` [B, T] tokens, both with zeros at the
    end; a T-th token is the last, so what follows it means nothing. The states of all layers are
    computed anew from them. It is also a `SequenceToSequence` with the same weights.

    Args:
        vocabulary: V, padding included.
        temperature: Divides the logits: below 1, what is probable is more so. The order stays.
        options: Those of `SequenceToSequence`.
    """

    begin = 1  # the token before the first

    def __init__(self, vocabulary: int, temperature: float = 1.0, **options: Any):
        super().__init__(vocabulary, **options)
        self.temperature = temperature
        self.value = keras.layers.Dense(1, kernel_initializer="zeros")

    def build(self, input_shape: Mapping[str, tuple[int | None, ...]] | None = None):
        super().build()
        self.value.build((None, self.units))

    def call(self, obs: Mapping[str, KerasTensor], training: bool = False):
        """Logits of the next token, and the value."""
        source, written = obs["source"], obs["written"]
        places = ops.shape(written)[1]
        count = ops.sum(ops.cast(ops.not_equal(written, 0), "int32"), axis=1)
        begin = ops.full_like(written[:, :1], self.begin)
        memory = self.encode(source)
        outputs = self.outputs_after(ops.concatenate([begin, written[:, :-1]], axis=1), memory)
        newest = ops.one_hot(ops.minimum(count, places - 1), places, dtype=outputs.dtype)
        output = ops.sum(outputs * newest[..., None], axis=1)
        hidden = self.seen_outputs(output[:, None], memory)[:, 0]
        return self.logits(hidden), self.value(output)[:, 0]

    def logits(self, hidden: KerasTensor):
        """[..., V] logits from [..., D], divided by the temperature."""
        return super().logits(hidden) / self.temperature

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}

    def take(self, network: SequenceToSequence):
        """Take the weights of a `SequenceToSequence` of the same sizes; the value stays."""
        for part, other in zip(self.parts, network.parts, strict=True):
            part.set_weights(other.get_weights())
        self.bias.assign(network.bias)
