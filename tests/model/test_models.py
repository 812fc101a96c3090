import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.model.nature_cnn import NatureCNN
from kytolly.model.numpy_forward import numpy_forward

MODELS = {
    "mlp": (lambda: DQNMLP(3, (8, 6)), (4,)),
    "mlp on a matrix": (lambda: DQNMLP(3, (8,)), (2, 5)),
    "dueling": (lambda: DuelingMLP(3, (8, 6)), (4,)),
    "cnn": (lambda: DQNMLP(3, (8,), NatureCNN()), (84, 84, 4)),
    "small cnn": (lambda: DuelingMLP(3, (8,), NatureCNN()), (10, 10, 4)),
}


def spec(shape):
    return tf.TensorSpec(shape, tf.uint8 if len(shape) == 3 else tf.float32)


def observations(shape, count=5):
    if len(shape) == 3:
        return np.random.default_rng(0).integers(0, 255, (count, *shape)).astype(np.uint8)
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_values_for_every_action_and_a_copy_from_disk_that_agrees(name, tmp_path):
    make, shape = MODELS[name]
    model, obs = make(), observations(shape)
    values = model(obs)
    assert values.shape == (5, 3) and values.dtype == "float32"
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(values, again(obs), atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_build_creates_every_weight(name):
    make, shape = MODELS[name]
    built, called = make(), make()
    built.build((None, *shape))
    called(observations(shape))
    assert [w.shape for w in built.weights] == [w.shape for w in called.weights]


def test_dueling_advantages_are_centred():
    model = DuelingMLP(3, (4,))
    model.build((None, 2))
    model.set_weights([0 * weight for weight in model.get_weights()])
    model.value.bias.assign([10.0])
    model.advantage.bias.assign([1.0, 2.0, 6.0])  # mean 3
    np.testing.assert_allclose(model(np.zeros((1, 2), np.float32)), [[8.0, 9.0, 13.0]])


def test_cnn_divides_integers_by_255_and_leaves_floats():
    torso = NatureCNN()
    image = observations((10, 10, 4))
    np.testing.assert_allclose(torso(image), torso(image.astype(np.float32) / 255), atol=1e-5)


def test_cnn_refuses_vectors():
    with pytest.raises(ValueError, match="network='mlp'"):
        NatureCNN().build((None, 4))


@pytest.mark.parametrize("name", ["mlp", "mlp on a matrix", "dueling"])
def test_numpy_twin_agrees(name):
    make, shape = MODELS[name]
    model, obs = make(), observations(shape)
    model(obs)
    np.testing.assert_allclose(numpy_forward(model, spec(shape))(obs), model(obs), atol=1e-5)


def test_numpy_twin_of_a_users_sequential_model():
    layers = [keras.layers.Dense(6, "tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    obs = observations((3,))
    np.testing.assert_allclose(numpy_forward(model, spec((3,)))(obs), model(obs), atol=1e-5)


READ = """
import sys, keras
from kytolly.agent.algorithms import part
part("dqn", "network")
print(type(keras.models.load_model(sys.argv[1])).__name__)
"""


def test_another_process_reads_every_network_of_the_table(tmp_path):
    """Keras finds a class in a file only where the class has been imported."""
    make, shape = MODELS["small cnn"]
    model = make()
    model(observations(shape))
    model.save(tmp_path / "best.keras")
    command = [sys.executable, "-c", READ, str(tmp_path / "best.keras")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "DuelingMLP", done.stderr


def test_no_numpy_twin_of_what_we_do_not_know():
    make, shape = MODELS["small cnn"]
    model = make()
    model(observations(shape))
    assert numpy_forward(model, spec(shape)) is None
    custom = keras.Sequential([keras.layers.Input((3,)), keras.layers.LayerNormalization()])
    assert numpy_forward(custom, spec((3,))) is None
