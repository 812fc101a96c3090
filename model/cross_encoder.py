"""How well a text answers a question, from a Transformer that reads both at once."""

from __future__ import annotations

import keras
from keras import ops

from kytolly.model.recomputation import call_with_recomputation

FEEDFORWARD = 4  # width of a block's hidden layer, in widths of the block
BEGIN, END = 1, 2  # `[CLS]` and `[SEP]`; 0 is padding
SPECIAL = 4  # the tokens below are no part of a text


@keras.saving.register_keras_serializable(package="kytolly")
class TransformerBlock(keras.layers.Layer):
    """Attention and a hidden layer, each added to its normalized input.

    [B, L, width] -> the same shape. Source: Vaswani et al. 2017, arXiv:1706.03762, with the
    normalization of Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture",
    arXiv:2002.04745.

    Args:
        width: Length of a token's vector.
        heads: Number of attention heads; they divide the width.
        dropout: Share of what each half adds that is dropped in training.
    """

    def __init__(self, width, heads, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.width, self.heads, self.rate = width, heads, dropout
        self.before_attention = keras.layers.LayerNormalization(epsilon=1e-6)
        # Within the loop over updates, XLA on a CPU takes as long for it as for bare products.
        self.attention = keras.layers.MultiHeadAttention(heads, width // heads)
        self.before_hidden = keras.layers.LayerNormalization(epsilon=1e-6)
        self.hidden = keras.layers.Dense(FEEDFORWARD * width, activation="gelu")
        self.outputs = keras.layers.Dense(width)
        self.dropout = keras.layers.Dropout(dropout)

    def build(self, input_shape):
        shape = (None, None, self.width)
        self.before_attention.build(shape)
        self.attention.build(shape, shape)
        self.before_hidden.build(shape)
        self.hidden.build(shape)
        self.outputs.build((None, None, FEEDFORWARD * self.width))
        self.dropout.build(shape)
        self.built = True

    def call(self, x, present, training=False):
        """Vectors after the block; `present` [B, L] is true where there is a token."""
        normal = self.before_attention(x)
        found = self.attention(normal, normal, attention_mask=present[:, None, :])
        x = x + self.dropout(found, training=training)
        found = self.outputs(self.hidden(self.before_hidden(x)))
        return x + self.dropout(found, training=training)

    def get_config(self):
        own = {"width": self.width, "heads": self.heads, "dropout": self.rate}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="kytolly")
class CrossEncoder(keras.Model):
    """A score for each question and context, read as `[CLS] question [SEP] context [SEP]`.

    {"question": [B, Q], "context": [B, L]} int32 tokens, of which 0 is padding -> [B] float32.
    Padding changes nothing: positions count tokens only. A token also says how similar the most
    similar token of the other text is, and whether it is the same one: without that, a network this
    small would have to learn from a few thousand questions what "the same word" is. The score comes
    from `[CLS]` and from the mean of the question's tokens.

    Sources: Nogueira & Cho 2019, "Passage Re-ranking with BERT", arXiv:1901.04085; Chen et al.
    2017, "Reading Wikipedia to Answer Open-Domain Questions", arXiv:1704.00051, section 3.2 (the
    features of tokens that both texts have).

    Args:
        vocabulary: Number of tokens; 0 is padding, 1 `[CLS]`, 2 `[SEP]`.
        max_length: Number of positions.
        dimension: Length of a token's vector in the table.
        width: Length of a token's vector in the Transformer.
        layers: Number of Transformer blocks.
        heads: Number of attention heads of a block.
        dropout: Share of numbers that are dropped in training.
        train_embedding: Whether the table of token vectors learns.
        recompute: Whether a block's activations are computed again for the gradient.
    """

    def __init__(
        self,
        vocabulary,
        max_length,
        dimension=256,
        width=64,
        layers=2,
        heads=4,
        dropout=0.1,
        train_embedding=False,
        recompute=False,
        **kwargs,
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
        }
        self.embedding = keras.layers.Embedding(vocabulary, dimension, trainable=train_embedding)
        self.projection = keras.layers.Dense(width, use_bias=False)
        self.match = keras.layers.Dense(width, use_bias=False)
        self.segments = keras.layers.Embedding(2, width)
        self.marks = keras.layers.Embedding(3, width)
        self.positions = keras.layers.Embedding(max_length, width)
        self.dropout = keras.layers.Dropout(dropout)
        self.blocks = [TransformerBlock(width, heads, dropout) for _ in range(layers)]
        self.normalization = keras.layers.LayerNormalization(epsilon=1e-6)
        self.head = keras.layers.Dense(1, dtype="float32")

    def build(self, input_shape=None):
        dimension, width = self.settings["dimension"], self.settings["width"]
        for table in (self.embedding, self.segments, self.marks, self.positions):
            table.build((None, None))
        self.projection.build((None, None, dimension))
        self.match.build((None, None, 2))
        for layer in (self.dropout, *self.blocks, self.normalization):
            layer.build((None, None, width))
        self.head.build((None, 2 * width))
        self.built = True

    def call(self, inputs, training=False):
        """[B] scores."""
        question, context = inputs["question"], inputs["context"]
        tokens, segment = token_sequence(question, context)
        present = tokens != 0
        x = self.projection(self.embedding(tokens))
        x = x + self.match(self.matches(tokens, segment))
        x = x + self.segments(segment) + self.marks(ops.where(tokens <= END, tokens, 0))
        place = ops.cumsum(ops.cast(present, "int32"), axis=1) - 1
        x = x + self.positions(ops.clip(place, 0, self.settings["max_length"] - 1))
        x = self.dropout(x, training=training)
        for block in self.blocks:
            if self.settings["recompute"] and training:
                x = call_with_recomputation(block, x, present=present, training=training)
            else:
                x = block(x, present=present, training=training)
        x = self.normalization(x)
        words = ops.cast((tokens >= SPECIAL) & (segment == 0), x.dtype)[..., None]
        mean = ops.sum(x * words, axis=1) / ops.maximum(ops.sum(words, axis=1), 1.0)
        return self.head(ops.concatenate([x[:, 0], mean], axis=-1))[:, 0]

    def matches(self, tokens, segment):
        """[B, L, 2] the largest cosine with a token of the other text, and whether it is 1."""
        vectors = ops.stop_gradient(self.embedding(tokens))
        vectors = vectors / ops.maximum(ops.norm(vectors, axis=-1, keepdims=True), 1e-3)
        cosines = ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1)))
        word = tokens >= SPECIAL
        other = segment[:, :, None] != segment[:, None, :]
        pairs = word[:, :, None] & word[:, None, :] & other
        same = pairs & (tokens[:, :, None] == tokens[:, None, :])
        nearest = ops.max(ops.where(pairs, cosines, ops.zeros_like(cosines)), axis=-1)
        exact = ops.cast(ops.any(same, axis=-1), nearest.dtype)
        return ops.stack([nearest, exact], axis=-1)

    def get_config(self):
        return {**super().get_config(), **self.settings}


def token_sequence(question, context):
    """Tokens [B, Q + L + 3] of `[CLS] question [SEP] context [SEP]`, and 0 or 1 for their text.

    Padding stays where it is, so the last `[SEP]` comes after that of the context.
    """
    zero = ops.zeros_like(question[:, :1])
    tokens = ops.concatenate([zero + BEGIN, question, zero + END, context, zero + END], axis=1)
    first = ops.shape(question)[1] + 2
    segment = ops.cast(ops.arange(ops.shape(tokens)[1]) >= first, "int32")
    return tokens, ops.broadcast_to(segment[None], ops.shape(tokens))
