"""Functional models of many kinds, as a user may build them for Dict observations."""

import keras
import tensorflow as tf
from keras import layers

OBS = {
    "near": tf.TensorSpec([4, 3], tf.float32),
    "far": tf.TensorSpec([3], tf.float32),
    "picture": tf.TensorSpec([8, 8, 4], tf.uint8),
}
ACTIONS = 2


def heads(inputs):
    """[B, 5] features of each input; the picture's are those of a mean."""
    picture = layers.GlobalAveragePooling2D()(layers.Rescaling(1 / 255)(inputs["picture"]))
    flat = [layers.Flatten()(inputs["near"]), inputs["far"], picture]
    return [layers.Dense(5, activation="tanh")(part) for part in flat]


def merged(layer):
    return lambda inputs: layer(heads(inputs))


def sequence(layer):
    return lambda inputs: layer(inputs["near"])


def image(*after):
    def features(inputs):
        found = layers.Rescaling(1 / 255)(inputs["picture"])
        for layer in after:
            found = layer(found)
        return layers.Flatten()(found)

    return features


def residual(inputs):
    found = layers.Dense(6)(inputs["far"])
    more = layers.Dense(6, activation="relu")(layers.LayerNormalization()(found))
    return layers.Add()([found, more])


def shared(inputs):
    layer = layers.Dense(3, activation="relu")
    return layers.Subtract()([layer(inputs["far"]), layer(layer(inputs["far"]))])


def nested(inputs):
    inner = keras.Sequential([keras.Input([3]), layers.Dense(8), layers.Dense(4)])
    return layers.Concatenate()([inner(inputs["far"]), inner(inputs["near"][:, 0])])


def attention(inputs):
    near = layers.Dense(8)(inputs["near"])
    return layers.Flatten()(layers.MultiHeadAttention(2, 4)(near, near))


def embedded(inputs):
    number = keras.ops.cast(inputs["far"] > 0, "int32")
    return layers.Flatten()(layers.Embedding(2, 300)(number))


KINDS = {
    "concatenate": merged(layers.Concatenate()),
    "add": merged(layers.Add()),
    "multiply": merged(layers.Multiply()),
    "average": merged(layers.Average()),
    "maximum": merged(layers.Maximum()),
    "dot": lambda inputs: layers.Dot(1)(heads(inputs)[:2]),
    "residual": residual,
    "shared layer": shared,
    "nested model": nested,
    "attention": attention,
    "embedding": embedded,
    "grouped convolution": image(layers.Conv2D(64, 3, groups=4, activation="relu")),
    "depthwise convolution": image(layers.SeparableConv2D(8, 3), layers.DepthwiseConv2D(3)),
    "transposed convolution": image(layers.Conv2D(2, 3), layers.Conv2DTranspose(3, 3)),
    "convolution in time": lambda inputs: layers.Flatten()(layers.Conv1D(6, 2)(inputs["near"])),
    "LSTM": sequence(layers.LSTM(8)),
    "bidirectional GRU": sequence(layers.Bidirectional(layers.GRU(4))),
    "time distributed": lambda inputs: layers.Flatten()(
        layers.TimeDistributed(layers.Dense(3))(inputs["near"])
    ),
    "spectral normalization": image(layers.SpectralNormalization(layers.Conv2D(4, 3))),
}


def make_model(kind):
    """The model of a kind, which reads all of the observation."""
    inputs = {n: keras.Input(s.shape, name=n, dtype=s.dtype.name) for n, s in OBS.items()}
    rest = [layers.Flatten()(inputs["near"]), inputs["far"]]
    pooled = layers.GlobalMaxPooling2D()(layers.Rescaling(1 / 255)(inputs["picture"]))
    found = layers.Concatenate()([KINDS[kind](inputs), *rest, pooled])
    return keras.Model(inputs, layers.Dense(ACTIONS)(found))
