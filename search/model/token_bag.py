"""A linear path of a text classifier: which tokens, and pairs of them, a text has."""

from __future__ import annotations

import keras
from keras import ops

SCALE = 30.0  # norm of a text's weights: the path learns as fast as the rest with one learning rate
FACTOR = 40_503  # 2**16 times the golden ratio, of which Knuth's multiplicative hash is made


class TokenBag(keras.layers.Layer):
    """Logits from the different tokens and pairs of neighbors in a text, each weighted by its idf.

    [B, L] tokens, of which 0 is padding -> [B, C] float32 logits, the sum of `table[key] * w[key]`
    over the different keys of a text, where `w` is the keys' idf, scaled to the norm `SCALE`. The
    table begins at 0. A token is its own key; the keys of pairs, which are hashed, come after.

    Args:
        vocabulary: Number of tokens, padding among them; a token above them is no key.
        buckets: Keys of pairs, which pairs of equal hash share.
        num_classes: C.

    Source: the wide part of Cheng et al. 2016, arXiv:1606.07792; hashed pairs as in Joulin et al.
    2017, arXiv:1607.01759.
    """

    def __init__(self, vocabulary, buckets, num_classes, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.vocabulary, self.buckets, self.num_classes = vocabulary, buckets, num_classes

    @property
    def num_keys(self):
        """Number of keys; the key 0 is none."""
        return self.vocabulary + self.buckets

    def build(self, input_shape):
        self.idf = self.add_weight((self.num_keys,), "ones", trainable=False, name="idf")
        self.table = self.add_weight((self.num_keys, self.num_classes), "zeros", name="table")
        self.built = True

    def keys(self, tokens):
        """[B, 2 L - 1] different keys of each text, among zeros."""
        tokens = ops.cast(tokens, "int32")
        first, second = tokens[:, :-1], tokens[:, 1:]
        pairs = self.vocabulary + (first * FACTOR + second) % self.buckets
        pairs = pairs * ops.cast((first != 0) & (second != 0), "int32")
        single = tokens * ops.cast(tokens < self.vocabulary, "int32")
        ordered = ops.sort(ops.concatenate([single, pairs], axis=1), axis=1)
        before = ops.pad(ordered[:, :-1], [[0, 0], [1, 0]])
        return ordered * ops.cast(ordered != before, "int32")

    def call(self, tokens):
        keys = self.keys(tokens)
        weights = ops.take(self.idf, keys, axis=0) * ops.cast(keys != 0, "float32")
        norm = ops.sqrt(ops.sum(ops.square(weights), axis=1, keepdims=True))
        weights = weights * (SCALE / ops.maximum(norm, 1e-6))
        return ops.einsum("bl,blc->bc", weights, ops.take(self.table, keys, axis=0))
