"""Networks of distributions: means, streams, their NumPy inference and their files."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.algorithms import make_config, part
from kytolly.agent.make_agent import default_network
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.model.distributional_mlp import AtomMLP, QuantileMLP
from kytolly.model.implicit_quantiles import IQNMLP
from kytolly.model.numpy_inference import numpy_network

VECTOR = EnvSpec("test/vector", tf.TensorSpec([4]), Discrete(3))
IMAGE = EnvSpec("test/image", tf.TensorSpec([10, 10, 2], tf.uint8), Discrete(3))
SETTINGS = [
    {"algorithm": "c51", "num_atoms": 7, "value_min": -2.0, "value_max": 4.0},
    {"algorithm": "qr-dqn", "num_quantiles": 5},
    {"algorithm": "iqn", "num_acting_quantiles": 6, "num_cosines": 8},
    {"algorithm": "iqn", "num_acting_quantiles": 6, "num_cosines": 8, "layers_after_level": 1},
]
each = pytest.mark.parametrize(
    "settings", SETTINGS, ids=["c51", "qr-dqn", "iqn", "iqn as in the paper"]
)


def make_network(settings, spec=VECTOR, **more):
    cfg = make_config({"hidden_units": (16, 12), **settings, **more})
    return default_network(cfg, spec)


def observations(rows, spec=VECTOR):
    numbers = np.random.default_rng(1).normal(0.0, 2.0, (rows, *spec.obs.shape))
    return np.abs(numbers).astype(spec.obs.dtype.as_numpy_dtype)


def test_the_value_of_atoms_is_their_mean():
    network = AtomMLP(1, (4,), None, 3, value_min=-1.0, value_max=1.0)
    found = network.mean(np.log([[[0.2, 0.3, 0.5]], [[0.7, 0.2, 0.1]]]).astype(np.float32))
    np.testing.assert_allclose(found, [[0.3], [-0.6]], atol=1e-6)


def test_two_streams_are_centered_over_actions_for_each_number():
    network = QuantileMLP(2, (4,), None, 3, True)
    network.build((None, 4))
    obs = observations(5)
    outputs = network.action_distributions(obs).numpy()
    state = network.state_outputs(network.features(obs)).numpy()
    np.testing.assert_allclose(outputs.mean(axis=1), state, atol=1e-6)
    assert not np.allclose(outputs[:, 0], outputs[:, 1], atol=1e-3)


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("network", ["mlp", "dueling"])
def test_a_quantile_follows_its_own_level(network, layers):
    network = make_network(SETTINGS[2], layers_after_level=layers, network=network)
    obs, levels = observations(4), np.array([[0.1, 0.9], [0.5, 0.1], [0.9, 0.2], [0.3, 0.3]])
    levels = tf.constant(levels, tf.float32)
    found = network.action_quantiles(obs, levels).numpy()
    assert found.shape == (4, 2, 3)
    for row in range(4):
        alone = network.action_quantiles(obs[row : row + 1], levels[row]).numpy()
        np.testing.assert_allclose(found[row], alone[0], atol=1e-5)  # by one product, if it can
    np.testing.assert_array_equal(found[3, 0], found[3, 1])
    assert not np.allclose(found[0, 0], found[0, 1], atol=1e-4)
    even = network.action_quantiles(obs, tf.constant((np.arange(6) + 0.5) / 6, tf.float32))
    np.testing.assert_allclose(network(obs), even.numpy().mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "dueling", "normalized", "one layer", "three layers"])
@each
def test_the_numpy_network_agrees_and_follows_new_weights(settings, kind):
    more = {"network": "dueling" if kind == "dueling" else "auto"}
    more |= {"hidden_units": {"one layer": (9,), "three layers": (8, 7, 6)}.get(kind, (16, 12))}
    network = make_network(settings, normalize_observations=kind == "normalized", **more)
    inference = numpy_network(network, VECTOR.obs)
    assert inference is not None
    rng = np.random.default_rng(0)
    network.set_weights([np.abs(rng.normal(0, 0.3, w.shape)) for w in network.get_weights()])
    ordered = [*network.trainable_variables, *network.non_trainable_weights]
    inference.take(np.concatenate([np.ravel(weight) for weight in ordered]))
    for rows in (3, 1, 8):
        obs = observations(rows)
        found = inference(obs)
        assert found.shape == (rows, 3)
        np.testing.assert_allclose(found, network(obs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", ["cnn", "dueling_cnn"])
@each
def test_images_have_a_convolutional_torso(settings, network):
    made = make_network(settings, IMAGE, network=network)
    assert type(made.torso).__name__ == "NatureCNN"
    obs = observations(2, IMAGE)
    assert made(obs).shape == (2, 3)
    inference = numpy_network(made, IMAGE.obs)
    assert inference is not None
    np.testing.assert_allclose(inference(np.asarray(obs)), made(obs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", ["mlp", "dueling"])
@each
def test_a_saved_network_is_the_same_when_loaded(settings, network, tmp_path):
    made = make_network(settings, network=network)
    made.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    assert type(loaded) is type(made) and loaded.get_config() == made.get_config()
    np.testing.assert_array_equal(loaded(observations(3)), made(observations(3)))


@each
def test_the_config_decides_how_much_is_learned_of_an_action(settings):
    cfg, network = make_config(settings), make_network(settings)
    kinds = {"c51": AtomMLP, "qr-dqn": QuantileMLP, "iqn": IQNMLP}
    assert type(network) is kinds[cfg.algorithm]
    method = part(cfg.algorithm, "policy").head_type.network_method
    levels = () if cfg.algorithm != "iqn" else (np.full((2, 5), 0.5, np.float32),)
    shape = getattr(network, method)(observations(2), *levels).shape
    assert sorted(shape) == sorted((2, 3, 5 if levels else cfg.outputs_per_action))
    assert dataclasses.replace(cfg, network="dueling").network == "dueling"
