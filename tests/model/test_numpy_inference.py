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


class Clipped(layers.Dense):
    """A layer of the user's that is a dense one for small outputs."""

    def call(self, obs, training=None):
        return keras.ops.clip(super().call(obs), -9.0, 9.0)


def relu(features):
    """Another function than Keras's of this name."""
    return keras.ops.clip(features, 0.0, 9.0)


def test_a_layer_or_an_activation_of_the_users_is_not_taken_for_keras_own():
    clipped = keras.Sequential([keras.Input([3]), Clipped(2)])
    assert_agrees(clipped, tf.TensorSpec([3]))  # of observations that are 20 times as large
    other = keras.Sequential([keras.Input([3]), layers.Dense(4, relu), layers.Dense(2)])
    assert numpy_network(other, tf.TensorSpec([3])) is None


class Counts(keras.Model):
    """Its call changes a weight, adds to the losses, or draws."""

    def __init__(self, effect):
        super().__init__()
        self.effect, self.last = effect, layers.Dense(2)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, obs):
        params = self.last(obs)
        if self.effect == "counts":
            self.calls.assign_add(1.0)
        if self.effect == "loss":
            self.add_loss(keras.ops.mean(params))
        if self.effect == "draws":
            params += 1e-5 * keras.random.normal((1, 2), seed=self.seeds)
        return params


@pytest.mark.parametrize("effect", ["counts", "draws", "loss"])
def test_the_trace_leaves_a_model_as_it_was_and_refuses_a_call_that_changes_it(effect):
    model = Counts(effect)
    model(np.zeros((1, 3), np.float32))
    before = [np.asarray(variable) for variable in model.variables]
    inference = numpy_network(model, tf.TensorSpec([3]))
    assert inference is None or effect == "loss"
    assert not any(keras.utils.is_keras_tensor(loss) for loss in model.losses)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


class ByRows(keras.Model):
    """Another function for one row than for several."""

    def __init__(self):
        super().__init__()
        self.last = layers.Dense(2)

    def call(self, obs):
        return self.last(obs) * (2.0 if obs.shape[0] == 1 else 1.0)


class SmallScale(keras.Model):
    """A weight that is read once by a trace, and shows in nothing while it is small."""

    def build(self, input_shape):
        self.scale = self.add_weight((3,), keras.initializers.Constant(1e-6))

    def call(self, obs):
        return obs + obs * keras.ops.reshape(self.scale, (1, 3))


@pytest.mark.parametrize("kind", [ByRows, SmallScale])
def test_what_few_observations_or_the_first_weights_hide_is_refused(kind):
    model = kind()
    model(np.zeros((2, 3), np.float32))
    assert numpy_network(model, tf.TensorSpec([3])) is None


class Squares(keras.Model):
    """Computes with integers as they come."""

    def __init__(self):
        super().__init__()
        self.first, self.last = layers.Dense(4, "relu"), layers.Dense(2)

    def call(self, obs):
        return self.last(self.first(keras.ops.square(obs) / 2))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32"])
def test_integers_become_float32_as_in_keras(dtype):
    model, spec = Squares(), tf.TensorSpec([3], dtype)
    model(np.zeros((2, 3), dtype))
    inference = numpy_network(model, spec)
    assert inference is not None
    obs = np.arange(6, dtype=dtype).reshape(2, 3)
    assert inference(obs).dtype == np.float32
    np.testing.assert_allclose(inference(obs), model(obs), rtol=1e-4, atol=1e-4)
