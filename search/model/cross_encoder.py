"""Score of a text as an answer to a question, by a Transformer that reads both at once."""

from __future__ import annotations

from collections.abc import Mapping

import keras
from keras import KerasTensor, ops

from kytolly.model.recomputation import call_with_recomputation
from kytolly.search.model.text_matches import PAIR_FEATURES, TOKEN_FEATURES, match_features
from kytolly.search.model.token_table import TokenTable

FEEDFORWARD = 4  # width of a block's hidden layer, in widths of the block
BEGIN, END = 1, 2  # `[CLS]` and `[SEP]`; 0 is padding
SPECIAL = 4  # the tokens below are no part of a text
FIRST_SCALE = 8.0  # what the first search's score counts when training begins


@keras.saving.register_keras_serializable(package="kytolly")
class TransformerBlock(keras.layers.Layer):
    """Attention and a hidden layer, each added to its normalized input.

    [B, L, width] -> the same shape. Source: Vaswani et al. 2017, arXiv:1706.03762, with the
    normalization of Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture",
    arXiv:2002.04745.

    Args:
        width: Length of a token's vector.
        heads: Number of attention heads; they divide the width.
        dropout: Share of what each half adds that is dropped where noise is given.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, **kwargs: object):
        super().__init__(**kwargs)
        self.width, self.heads, self.dropout = width, heads, dropout
        self.before_attention = keras.layers.LayerNormalization(epsilon=1e-6)
        # Within the loop over updates, XLA on a CPU takes as long for it as for bare products.
        self.attention = keras.layers.MultiHeadAttention(heads, width // heads)
        self.before_hidden = keras.layers.LayerNormalization(epsilon=1e-6)
        self.hidden = keras.layers.Dense(FEEDFORWARD * width, activation="gelu")
        self.outputs = keras.layers.Dense(width)

    def build(self, input_shape: tuple[int | None, ...]):
        shape = (None, None, self.width)
        self.before_attention.build(shape)
        self.attention.build(shape, shape)
        self.before_hidden.build(shape)
        self.hidden.build(shape)
        self.outputs.build((None, None, FEEDFORWARD * self.width))
        self.built = True

    def call(
        self,
        x: KerasTensor,
        present: KerasTensor,
        noise: KerasTensor | None = None,
    ):
        """Vectors after the block.

        Args:
            x: [B, L, width].
            present: [B, L], true where there is a token.
            noise: [B, 2, width] from 0 to 1: which numbers are dropped in both halves; None: none.
        """
        noises = [None, None] if noise is None else [noise[:, :1], noise[:, 1:]]
        normal = self.before_attention(x)
        attended = self.attention(normal, normal, attention_mask=present[:, None, :])
        middle = x + without_dropped(attended, noises[0], self.dropout)
        added = self.outputs(self.hidden(self.before_hidden(middle)))
        return middle + without_dropped(added, noises[1], self.dropout)

    def get_config(self):
        arguments = {"width": self.width, "heads": self.heads, "dropout": self.dropout}
        return {**super().get_config(), **arguments}


@keras.saving.register_keras_serializable(package="kytolly")
class CrossEncoder(keras.Model):
    """A score for each question and context, read as `[CLS] question [SEP] context [SEP]`.

    {"question": [B, Q], "context": [B, L]} int32 tokens, of which 0 is padding -> [B] float32.
    Padding changes nothing: positions count tokens only. The score is a weighted sum of what the
    texts have in common (`text_matches`), and what Transformer blocks add to it, from `[CLS]` and
    from the mean of the question's tokens; they see of each token what it has in common with the
    other text. They begin with nothing to add.

    Source: Nogueira & Cho 2019, "Passage Re-ranking with BERT", arXiv:1901.04085.

    Args:
        vocabulary: Number of tokens; 0 is padding, 1 `[CLS]`, 2 `[SEP]`.
        max_length: Number of positions.
        dimension: Length of a token's vector in the table.
        width: Length of a token's vector in the Transformer.
        layers: Number of Transformer blocks; 0: only what the texts have in common counts.
        heads: Number of attention heads of a block.
        dropout: Share of numbers that are dropped where noise is given; the same ones at all
            places (Gal & Ghahramani 2016, arXiv:1512.05287), because XLA draws slowly on a CPU.
        train_embedding: The table of token vectors learns.
        recompute: A block's activations are computed again for the gradient.
        learned: How many tokens have vectors that learn, the first ones; None: all, if any.

    Attributes:
        rarity: [vocabulary] from 0 to 1, how rare a token is among the documents; not learned.
        center, spread: [PAIR_FEATURES] mean and standard deviation of what texts have in common;
            not learned.
        first_scale: What the first search's score counts in training.
    """

    def __init__(
        self,
        vocabulary: int,
        max_length: int,
        dimension: int = 256,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
        train_embedding: bool = False,
        recompute: bool = False,
        learned: int | None = None,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        self.settings = {
            "vocabulary": vocabulary,
            "max_length": max_length,
            "dimension": dimension,
            "width": width,
            "layers": layers,
            "heads": heads,
            "dropout": dropout,
            "train_embedding": train_embedding,
            "recompute": recompute,
            "learned": learned,
        }
        self.embedding = TokenTable(vocabulary, dimension, learned, trainable=train_embedding)
        self.shared = keras.layers.Dense(
            1, use_bias=False, kernel_initializer="zeros", dtype="float32"
        )
        self.blocks = [TransformerBlock(width, heads, dropout) for _ in range(layers)]
        if layers:
            self.projection = keras.layers.Dense(width, use_bias=False)
            self.match = keras.layers.Dense(width, use_bias=False)
            self.segments = keras.layers.Embedding(2, width)
            self.marks = keras.layers.Embedding(3, width)
            self.positions = keras.layers.Embedding(max_length, width)
            self.normalization = keras.layers.LayerNormalization(epsilon=1e-6)
            self.head = keras.layers.Dense(1, kernel_initializer="zeros", dtype="float32")

    @property
    def noise_shape(self):
        """The length of the noise of a pair."""
        return 1 + 2 * self.settings["layers"], self.settings["width"]

    def build(self, input_shape: tuple[int | None, ...] | None = None):
        dimension, width = self.settings["dimension"], self.settings["width"]
        self.embedding.build((None, None))
        self.shared.build((None, PAIR_FEATURES))
        if self.blocks:
            for table in (self.segments, self.marks, self.positions):
                table.build((None, None))
            self.projection.build((None, None, dimension))
            self.match.build((None, None, TOKEN_FEATURES))
            for layer in (*self.blocks, self.normalization):
                layer.build((None, None, width))
            self.head.build((None, 2 * width))
        self.rarity = self.add_constant((self.settings["vocabulary"],), "rarity")
        self.center = self.add_constant((PAIR_FEATURES,), "center")
        self.spread = self.add_constant((PAIR_FEATURES,), "spread")
        begin = keras.initializers.Constant(FIRST_SCALE)
        self.first_scale = self.add_weight((), begin, dtype="float32", name="first_scale")
        self.built = True

    def add_constant(self, shape: tuple[int | None, ...], name: str):
        """Numbers that training leaves as they are."""
        return self.add_weight(shape, "ones", dtype="float32", trainable=False, name=name)

    def call(
        self,
        inputs: Mapping[str, KerasTensor],
        training: bool = False,
        noise: KerasTensor | None = None,
    ):
        """[B] scores; `noise` [B, *noise_shape] from 0 to 1 decides what is dropped."""
        question, context = inputs["question"], inputs["context"]
        *matches, shared = self.matches(question, context)
        scores = self.shared((shared - self.center) / self.spread)
        if self.blocks:
            scores = scores + self.head(self.read(question, context, matches, training, noise))
        return scores[:, 0]

    def read(
        self,
        question: KerasTensor,
        context: KerasTensor,
        matches: list[KerasTensor],
        training: bool,
        noise: KerasTensor | None,
    ):
        """[B, 2 * width] float32 of `[CLS]`, and the mean of the question's tokens."""
        tokens, segment = token_sequence(question, context)
        present = tokens != 0
        mark = ops.zeros_like(matches[0][:, :1])
        features = ops.concatenate([mark, matches[0], mark, matches[1], mark], axis=1)
        x = self.projection(self.embedding(tokens)) + self.match(features)
        x = x + self.segments(segment) + self.marks(ops.where(tokens <= END, tokens, 0))
        place = ops.cumsum(ops.cast(present, "int32"), axis=1) - 1
        x = x + self.positions(ops.clip(place, 0, self.settings["max_length"] - 1))
        if noise is not None:
            x = without_dropped(x, noise[:, :1], self.settings["dropout"])
        for number, block in enumerate(self.blocks):
            part = None if noise is None else noise[:, 1 + 2 * number : 3 + 2 * number]
            if self.settings["recompute"] and training:
                x = call_with_recomputation(block, x, present=present, noise=part)
            else:
                x = block(x, present=present, noise=part)
        x = self.normalization(x)
        words = ops.cast((tokens >= SPECIAL) & (segment == 0), x.dtype)[..., None]
        mean = ops.sum(x * words, axis=1) / ops.maximum(ops.sum(words, axis=1), 1.0)
        return ops.cast(ops.concatenate([x[:, 0], mean], axis=-1), "float32")

    def matches(self, question: KerasTensor, context: KerasTensor):
        """The features of what the texts have in common, as `match_features` says."""
        texts = question, context
        words = [ops.cast(one >= SPECIAL, "float32") for one in texts]
        vectors = [ops.stop_gradient(self.embedding(one)) for one in texts]
        rare = [ops.take(self.rarity, one) * word for one, word in zip(texts, words, strict=True)]
        same = ops.cast(question[:, :, None] == context[:, None, :], "float32")
        return match_features([ops.cast(one, "float32") for one in vectors], words, rare, same)

    def get_config(self):
        return {**super().get_config(), **self.settings}


def without_dropped(values: KerasTensor, noise: KerasTensor | None, share: float):
    """The values, without those whose noise is below the share, and the others larger."""
    if noise is None:
        return values
    return values * ops.cast(noise >= share, values.dtype) / (1.0 - share)


def token_sequence(question: KerasTensor, context: KerasTensor):
    """Tokens [B, Q + L + 3] of `[CLS] question [SEP] context [SEP]`, and 0 or 1 for their text.

    Padding stays where it is, so the last `[SEP]` comes after that of the context.
    """
    zero = ops.zeros_like(question[:, :1])
    tokens = ops.concatenate([zero + BEGIN, question, zero + END, context, zero + END], axis=1)
    first = ops.shape(question)[1] + 2
    segment = ops.cast(ops.arange(ops.shape(tokens)[1]) >= first, "int32")
    return tokens, ops.broadcast_to(segment[None], ops.shape(tokens))
