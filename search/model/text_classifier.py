"""Classes of a text from what any part of it says."""

from __future__ import annotations

import functools

import keras
from keras import KerasTensor, ops

from kytolly.search.model.token_table import TokenTable

HIDDEN = -1e4  # added to what padding says, so that a maximum leaves it out
SCALE = 30.0  # norm of a text's weights: the bag learns as fast as the rest with one learning rate
FACTOR = 40_503  # 2**16 times the golden ratio, of which Knuth's multiplicative hash is made


@keras.saving.register_keras_serializable(package="kytolly")
class TextClassifierNetwork(keras.Model):
    """Logits of classes from the mean and the maxima of a text's tokens and their n-grams.

    [B, L] tokens, of which 0 is padding -> [B, C] float32 logits. The features are the mean of the
    token vectors, and of a convolution over them the mean and the maximum over all places, after
    Kim 2014, "Convolutional Neural Networks for Sentence Classification", arXiv:1408.5882. Padding
    changes nothing: a text has the same logits in every length. A `TokenBag` may add its own.

    Args:
        vocabulary: Number of tokens, padding among them.
        num_classes: C.
        dimension: Length of a token's vector.
        filters: Of the convolution.
        kernel_size: Tokens that a filter sees.
        dropout: Share of the features that are dropped where noise is given.
        train_embedding: Whether the token vectors learn.
        pair_buckets: Of the `TokenBag`; 0: there is none.
        seen: Number of tokens that training texts have, the first ones, padding among them: only
            their vectors learn, and only they are in the `TokenBag`. None: all.
    """

    def __init__(
        self,
        vocabulary: int,
        num_classes: int,
        dimension: int = 256,
        filters: int = 256,
        kernel_size: int = 3,
        dropout: float = 0.3,
        train_embedding: bool = True,
        pair_buckets: int = 0,
        seen: int | None = None,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        self.vocabulary, self.num_classes, self.dimension = vocabulary, num_classes, dimension
        self.filters, self.kernel_size, self.dropout = filters, kernel_size, dropout
        self.train_embedding, self.pair_buckets = train_embedding, pair_buckets
        self.seen, known = seen, vocabulary if seen is None else seen
        learned = seen if train_embedding or seen is None else 0
        self.embedding = TokenTable(vocabulary, dimension, learned, trainable=train_embedding)
        self.products = keras.layers.Dense(kernel_size * filters, use_bias=False)
        self.head = keras.layers.Dense(num_classes, dtype="float32")
        self.bag = TokenBag(known, pair_buckets, num_classes) if pair_buckets else None

    @property
    def num_features(self):
        """Number of features that the head sees."""
        return self.dimension + 2 * self.filters

    def build(self, input_shape: tuple[int | None, ...]):
        self.embedding.build((None, None))
        self.products.build((None, None, self.dimension))
        self.head.build((None, self.num_features))
        if self.bag is not None:
            self.bag.build((None, None))
        self.bias = self.add_weight((self.filters,), "zeros", name="bias")
        self.built = True

    def call(
        self,
        tokens: KerasTensor,
        training: bool = False,
        noise: KerasTensor | None = None,
    ):
        """Logits; `noise` [B, F] from 0 to 1 is what dropout compares with its share."""
        present = ops.cast(tokens != 0, self.compute_dtype)[..., None]
        count = ops.maximum(ops.sum(present, axis=1), 1.0)
        vectors = self.embedding(tokens) * present
        grams = keras.activations.gelu(self.convolve(vectors))
        parts = [
            ops.sum(vectors, axis=1) / count,
            ops.sum(grams * present, axis=1) / count,
            ops.max(grams * present + HIDDEN * (1.0 - present), axis=1) * ops.max(present, axis=1),
        ]
        features = ops.cast(ops.concatenate(parts, axis=-1), "float32")
        if noise is not None:
            mask = ops.cast(noise >= self.dropout, "float32")
            features = features * mask / (1.0 - self.dropout)
        logits = self.head(features)
        return logits if self.bag is None else logits + self.bag(tokens)

    def convolve(self, vectors: KerasTensor):
        """[B, L, F] convolution as one product of matrices.

        XLA's own convolution takes 30 times as long on a CPU, within the loop over updates.
        Every place gives what it says to each of its neighbors, and they are shifted and added.
        """
        width, length = self.kernel_size, ops.shape(vectors)[1]
        left = (width - 1) // 2
        said = ops.pad(self.products(vectors), [[0, 0], [left, width - 1 - left], [0, 0]])
        parts = ops.split(said, width, axis=-1)
        shifted = [part[:, at : at + length] for at, part in enumerate(parts)]
        return ops.add(functools.reduce(ops.add, shifted), self.bias)

    def get_config(self):
        names = "vocabulary num_classes dimension filters kernel_size dropout train_embedding "
        names = (names + "pair_buckets seen").split()
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


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

    def __init__(self, vocabulary: int, buckets: int, num_classes: int, **kwargs: object):
        super().__init__(dtype="float32", **kwargs)
        self.vocabulary, self.buckets, self.num_classes = vocabulary, buckets, num_classes

    @property
    def num_keys(self):
        """Number of keys; the key 0 is none."""
        return self.vocabulary + self.buckets

    def build(self, input_shape: tuple[int | None, ...]):
        self.idf = self.add_weight((self.num_keys,), "ones", trainable=False, name="idf")
        self.table = self.add_weight((self.num_keys, self.num_classes), "zeros", name="table")
        self.built = True

    def keys(self, tokens: KerasTensor):
        """[B, 2 L - 1] different keys of each text, among zeros."""
        numbers = ops.cast(tokens, "int32")
        first, second = numbers[:, :-1], numbers[:, 1:]
        pairs = self.vocabulary + (first * FACTOR + second) % self.buckets
        pairs = pairs * ops.cast((first != 0) & (second != 0), "int32")
        single = numbers * ops.cast(numbers < self.vocabulary, "int32")
        ordered = ops.sort(ops.concatenate([single, pairs], axis=1), axis=1)
        before = ops.pad(ordered[:, :-1], [[0, 0], [1, 0]])
        return ordered * ops.cast(ordered != before, "int32")

    def call(self, tokens: KerasTensor):
        keys = self.keys(tokens)
        weights = ops.take(self.idf, keys, axis=0) * ops.cast(keys != 0, "float32")
        norm = ops.sqrt(ops.sum(ops.square(weights), axis=1, keepdims=True))
        weights = weights * (SCALE / ops.maximum(norm, 1e-6))
        return ops.einsum("bl,blc->bc", weights, ops.take(self.table, keys, axis=0))
