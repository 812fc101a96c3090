"""Models of users in NumPy: the same as Keras computes, or None."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from kytolly.model.numpy_inference import numpy_network, ordered_weights
from tests.deployment.functional_models import KINDS, OBS, make_model

SUPPORTED = {
    "concatenate",
    "add",
    "multiply",
    "average",
    "maximum",
    "residual",
    "shared layer",
    "nested model",
    "dot",
    "time distributed",
    "spectral normalization",
}


def draw(spec, rows=3):
    rng = np.random.default_rng(0)
    return {
        name: (20 * rng.normal(size=(rows, *part.shape))).astype(part.dtype.as_numpy_dtype)
        for name, part in spec.items()
    }


def change_weights(model):
    rng = np.random.default_rng(1)
    model.set_weights([np.abs(w + rng.normal(0.0, 0.1, w.shape)) for w in model.get_weights()])


def assert_agrees(model, spec):
    """It follows new weights, for any number of rows, and the model stays as it was."""
    config = model.get_config()
    inference = numpy_network(model, spec)
    assert inference is not None and model.get_config() == config
    change_weights(model)
    inference.take(np.concatenate([np.ravel(w) for w in ordered_weights(model)]))
    for rows in (3, 1):
        obs = draw(spec, rows) if isinstance(spec, dict) else draw({"": spec}, rows)[""]
        np.testing.assert_allclose(inference(obs), model(obs), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_functional_model_is_the_same_in_numpy_or_refused(kind):
    model = make_model(kind)
    if kind in SUPPORTED:
        assert_agrees(model, OBS)
    else:
        assert numpy_network(model, OBS) is None


SEQUENTIAL = {
    "dropout": ((4,), [layers.Dense(6, "tanh"), layers.Dropout(0.5), layers.Dense(2)]),
    "norms": (
        (4,),
        [layers.Dense(6), layers.BatchNormalization(), layers.ReLU(), layers.LayerNormalization()],
    ),
    "no bias": ((4,), [layers.Dense(6, "elu", use_bias=False), layers.Activation("sigmoid")]),
    "matrix": ((5, 4), [layers.Dense(6, "silu"), layers.Flatten(), layers.Dense(2)]),
    "image": (
        (9, 8, 3),
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, (3, 2), 2, padding="same", activation="relu"),
            layers.Conv2D(5, 2),
            layers.Flatten(),
            layers.Dense(2, "softplus"),
        ],
    ),
}


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_sequential_model_is_the_same_in_numpy(name):
    shape, parts = SEQUENTIAL[name]
    dtype = tf.uint8 if name == "image" else tf.float32
    inputs = keras.Input(shape, dtype=dtype.name)
    assert_agrees(keras.Sequential([inputs, *parts]), tf.TensorSpec(shape, dtype))


class ReadsAtOnce(keras.Model):
    """Computes with a weight before it meets the observation."""

    def build(self, input_shape):
        self.scale = self.add_weight((1,), "ones")

    def call(self, obs):
        return obs * keras.ops.exp(self.scale)


def test_what_a_trace_would_read_once_and_for_all_is_refused():
    model = ReadsAtOnce()
    model.build((None, 3))
    assert numpy_network(model, tf.TensorSpec([3])) is None


def test_a_subclass_needs_nothing_of_its_own():
    class Residual(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = layers.Dense(3, "relu"), layers.Dense(2)

        def call(self, obs, training=False):
            return self.last(obs + self.first(obs, training=training))

    model = Residual()
    model(np.zeros((1, 3), np.float32))
    assert_agrees(model, tf.TensorSpec([3]))
