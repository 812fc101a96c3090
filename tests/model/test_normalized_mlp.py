"""Networks with layer norms, and their NumPy inference."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import make_network
from kytolly.config.tuned import older_defaults
from kytolly.loop.env_runner import make_env_runner
from kytolly.model.nature_cnn import GridCNN, NatureCNN
from kytolly.model.normalized_mlp import NormalizedMLP
from kytolly.model.numpy_inference import numpy_network


def norm(x, gamma=1.0, beta=0.0):
    centred = x - x.mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) + beta


def built(model, shape, dtype=np.float32):
    model(np.zeros((2, *shape), dtype))
    rng = np.random.default_rng(3)
    model.set_weights([w + rng.normal(scale=0.1, size=w.shape) for w in model.get_weights()])
    return model


def test_each_hidden_layer_is_normalized_before_its_relu():
    model = built(NormalizedMLP(3, (5, 4)), (2,))
    obs = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    features = obs
    for layer, scale in zip(model.hidden.dense, model.hidden.norms, strict=True):
        features = features @ layer.kernel.numpy() + layer.bias.numpy()
        features = np.maximum(norm(features, scale.gamma.numpy(), scale.beta.numpy()), 0.0)
    expected = features @ model.q_values.kernel.numpy() + model.q_values.bias.numpy()
    np.testing.assert_allclose(model(obs), expected, rtol=1e-4, atol=1e-5)


def test_faint_inputs_are_normalized_as_well():
    # A deviation of 0.01: with Keras's epsilon of 1e-3 the features had a third of their size.
    model = NormalizedMLP(2, (64,), he_normal=True)
    model(np.zeros((1, 4), np.float32))
    faint = 0.01 * np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    features = np.asarray(model.hidden(faint))
    np.testing.assert_allclose((features**2).mean(), 0.5, atol=0.15)


@pytest.mark.parametrize(
    "make, shape, dtype",
    [
        (lambda: NormalizedMLP(3, (8, 7)), (4,), np.float32),
        (lambda: NormalizedMLP(6, (9,), GridCNN(layer_norm=True)), (10, 10, 4), bool),
        (lambda: NormalizedMLP(6, (9,), GridCNN(layer_norm=True)), (5, 7, 2), np.int8),
    ],
    ids=["vector", "bools", "integers"],
)
def test_the_numpy_network_agrees(make, shape, dtype):
    model = built(make(), shape, dtype)
    inference = numpy_network(model, tf.TensorSpec(shape, dtype))
    assert inference is not None
    obs = (np.random.default_rng(1).normal(size=(5, *shape)) * 2).astype(dtype)
    np.testing.assert_allclose(inference(obs), model(obs), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(inference(obs[:1]), model(obs[:1]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("torso", [NatureCNN, GridCNN])
def test_a_torso_with_norms_normalizes_channels_and_is_saved(torso, tmp_path):
    shape, dtype = ((40, 44, 3), np.uint8) if torso is NatureCNN else ((6, 5, 2), bool)
    model = built(NormalizedMLP(3, (8,), torso(layer_norm=True)), shape, dtype)
    assert len(model.torso.norms) == len(model.torso.convolutions)
    obs = np.random.default_rng(2).integers(0, 2, (3, *shape)).astype(dtype)
    features = model.torso(obs)
    assert features.shape == model.torso.compute_output_shape((3, *shape))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(obs), model(obs))


def test_dqn_has_norms_where_they_are_asked_for_and_begins_as_without_them():
    spec = make_env_runner(make_config({"algorithm": "dqn"}), "CartPole-v1").spec
    networks = {}
    for algorithm, norm in (("dqn", False), ("dqn", True), ("pqn", True)):
        cfg = make_config({"algorithm": algorithm, "layer_norm": norm, "hidden_units": (64,)})
        networks[algorithm, norm] = make_network(cfg.fitted_to(spec), spec)
    assert not isinstance(networks["dqn", False], NormalizedMLP)
    for (algorithm, _), network in networks.items():
        biases = network.hidden.dense[0].bias.numpy()
        assert (np.abs(biases) <= 0.5).all() and biases.any() == (algorithm == "dqn")
    assert isinstance(networks["dqn", True], NormalizedMLP)


@pytest.mark.parametrize(
    "settings", [{"network": "dueling"}, {"noisy": True}, {"memory": "gru"}, {"algorithm": "c51"}]
)
def test_norms_are_refused_where_no_network_has_them(settings):
    with pytest.raises(ValueError, match=r"layer_norm is set for .* expected dqn, ddqn or munch"):
        make_config({"algorithm": "dqn", "layer_norm": True} | settings)


VECTOR, GRID, STATE = "CartPole-v1", "MinAtar/Breakout-v1", "FrozenLake-v1"


@pytest.mark.parametrize(
    "env, settings, norms, epsilons",
    [
        (VECTOR, {}, True, (0.1, 0.02)),
        (VECTOR, {"algorithm": "munchausen"}, False, (None, 0.04)),
        (VECTOR, {"algorithm": "munchausen", "layer_norm": True}, True, (0.1, 0.02)),
        (VECTOR, {"algorithm": "ddqn"}, True, (0.1, 0.02)),
        (VECTOR, {"epsilon_final": 0.04}, True, (None, 0.04)),
        (VECTOR, {"epsilon_middle": 0.5}, True, (0.5, 0.04)),
        (VECTOR, {"epsilon_start": 0.05}, True, (0.05, 0.02)),
        (VECTOR, {"layer_norm": False}, False, (None, 0.04)),
        (VECTOR, {"algorithm": "c51"}, False, (None, 0.04)),
        (VECTOR, {"network": "dueling"}, False, (None, 0.04)),
        (VECTOR, {"noisy": True}, False, (0.1, 0.02)),
        (VECTOR, {"algorithm": "rainbow"}, False, (0.1, 0.02)),
        (VECTOR, {"algorithm": "rainbow", **older_defaults("0.2", "rainbow")}, False, (None, 0.0)),
        (VECTOR, {"memory": "gru"}, False, (None, 0.04)),
        (VECTOR, older_defaults("0.2", "dqn"), False, (None, 0.04)),
        (GRID, {}, False, (None, 0.04)),
        (GRID, {"layer_norm": True}, True, (0.1, 0.02)),
        (STATE, {}, False, (None, 0.04)),
        (STATE, {"network": "mlp"}, True, (0.1, 0.02)),
    ],
)
def test_layers_alone_have_norms_by_default_and_epsilon_falls_on(env, settings, norms, epsilons):
    cfg = make_config({"algorithm": "dqn"} | settings)
    runner = make_env_runner(cfg, env)
    runner.close()
    fitted = cfg.fitted_to(runner.spec)
    assert fitted.layer_norm is norms
    assert (fitted.epsilon_middle, fitted.epsilon_final) == epsilons


@pytest.mark.parametrize("norm, network", [(False, "table"), (True, "auto")])
def test_numbered_states_get_layers_where_norms_are_asked_for(norm, network):
    cfg = make_config({"algorithm": "dqn", "layer_norm": norm})
    runner = make_env_runner(cfg, "FrozenLake-v1")
    runner.close()
    assert cfg.fitted_to(runner.spec).network == network
