"""Noisy layers: noise of weights and of rows is the same function, and none when evaluated."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.acting import HostActor
from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import default_network
from kytolly.agent.noisy_greedy import HostNoise
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.noisy import NoisyDense, noise_widths, noisy_layers, row_noise
from kytolly.policy.action_values import ActionValues
from kytolly.policy.noisy_weights import NoisyWeights, factor_noise

SPEC = EnvSpec("test/vector", tf.TensorSpec([4]), Discrete(3))
FAMILY = [
    {"algorithm": "dqn"},
    {"algorithm": "dqn", "network": "dueling"},
    {"algorithm": "c51", "network": "dueling", "num_atoms": 5},
    {"algorithm": "qr-dqn", "num_quantiles": 3},
    {"algorithm": "iqn", "network": "dueling", "num_acting_quantiles": 4, "num_cosines": 6},
]
each = pytest.mark.parametrize("settings", FAMILY, ids=lambda one: "-".join(map(str, one.values())))


def make_network(settings, **more):
    hidden = {"hidden_units": (9, 7), "noisy": True, **settings, **more}
    network = default_network(make_config(hidden), SPEC)
    rng = np.random.default_rng(0)
    network.set_weights([rng.normal(0, 0.4, w.shape) for w in network.get_weights()])
    return network


def observations(rows):
    return np.random.default_rng(1).normal(size=(rows, 4)).astype(np.float32)


def test_a_noisy_layer_by_hand():
    layer = NoisyDense(2, noise_scale=0.6)
    layer.build((None, 4))
    np.testing.assert_allclose(layer.kernel_deviation, np.full((4, 2), 0.3))  # 0.6 / sqrt(4)
    np.testing.assert_allclose(layer.bias_deviation, [0.3, 0.3])
    layer = NoisyDense(1)
    layer.build((None, 2))
    weights = [[[1.0], [2.0]], [3.0], [[0.5], [0.25]], [0.125]]
    layer.set_weights([np.array(weight) for weight in weights])
    obs = tf.constant([[1.0, 10.0], [1.0, 10.0]])
    np.testing.assert_allclose(layer(obs), [[24.0], [24.0]])
    noise = tf.constant([[2.0, 4.0], [0.0, 0.0]]), tf.constant([[8.0], [-1.0]])
    # (1 + 0.5*2*8) + 10 (2 + 0.25*4*8) + 3 + 0.125*8 = 9 + 100 + 4; the other only in the bias.
    np.testing.assert_allclose(layer(obs, noise=row_noise([layer], noise)), [[113.0], [23.875]])


def test_factors_keep_the_sign_and_take_the_root():
    np.testing.assert_allclose(factor_noise(tf.constant([-4.0, 0.0, 2.25])), [-2.0, 0.0, 1.5])


@each
def test_noise_of_rows_is_noise_of_weights_row_by_row_and_in_numpy(settings):
    network, obs = make_network(settings), observations(5)
    weights, layers = NoisyWeights(network), noisy_layers(network)
    current, widths = weights.split(weights.vector), noise_widths(layers)
    draw = HostNoise(3).draw(5, widths)
    found = network(obs, noise=row_noise(layers, [tf.constant(one) for one in draw]))
    mean = network(obs)
    actor = HostActor(network, ActionValues(3), SPEC.obs)
    np.testing.assert_allclose(HostNoise(3).params(actor, obs), found, rtol=1e-3, atol=1e-3)
    for row in range(5):
        noisy = weights.with_noise(current, [tf.constant(one[row]) for one in draw])
        alone = weights.call(noisy, obs[row : row + 1])
        np.testing.assert_allclose(alone[0], found[row], rtol=1e-3, atol=1e-3)
        assert abs(alone[0] - mean[row]).numpy().max() > 0.01
    np.testing.assert_allclose(actor.params(obs), mean, rtol=1e-3, atol=1e-3)  # keeps no noise


def test_one_environment_has_plain_matrices():
    network = make_network({"algorithm": "dqn"})
    actor = HostActor(network, ActionValues(3), SPEC.obs)
    noise = HostNoise(1)
    first = noise.params(actor, observations(1))
    np.testing.assert_array_equal(noise.params(actor, observations(1)), first)
    assert not np.allclose(HostNoise(2).params(actor, observations(1)), first)
    assert all(weight.ndim <= 2 for weight in noise._noisy_network.weights)


def test_noise_has_mean_zero_and_the_deviations_size():
    network = make_network({"algorithm": "dqn"}, hidden_units=(6,))
    weights = NoisyWeights(network)
    current = weights.split(weights.vector)
    numbers = tf.random.Generator.from_seed(1).uniform([3_000, weights.noise_count])
    found = tf.vectorized_map(lambda x: weights.noisy_weights(current, x)[0], numbers)
    found = (found - current[0]).numpy()
    deviation = current[weights._places[0][2]].numpy()
    # The variance of sign(x) sqrt|x| is E|x| = sqrt(2 / pi); of a product of two, 2 / pi.
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=0.06)
    np.testing.assert_allclose(found.var(axis=0), deviation**2 * 2 / np.pi, rtol=0.2, atol=1e-3)


@each
def test_a_noisy_network_is_saved_and_loaded(settings, tmp_path):
    network = make_network(settings)
    network.save(tmp_path / "a.keras")
    loaded = keras.models.load_model(tmp_path / "a.keras")
    assert len(noisy_layers(loaded)) == len(noisy_layers(network)) >= 2
    np.testing.assert_array_equal(loaded(observations(3)), network(observations(3)))


def test_a_network_without_noisy_layers_is_refused():
    plain = default_network(make_config({"algorithm": "dqn"}), SPEC)
    with pytest.raises(ValueError, match=r"noisy is set, and the model 'dqnmlp.*' has no noisy la"):
        NoisyWeights(plain)


def users_network():
    """A Functional model with a noisy layer, which takes no noise in its call."""
    inputs = keras.Input([4])
    hidden = keras.layers.Dense(5, "tanh")(inputs)
    return keras.Model(inputs, NoisyDense(3)(hidden))


@pytest.mark.parametrize("make", [users_network, lambda: make_network(FAMILY[0])])
def test_outputs_are_a_pure_function_that_can_be_mapped_over_agents(make):
    network, obs = make(), tf.constant(observations(5))
    weights = NoisyWeights(network)
    vectors = tf.stack([weights.vector, 0.5 * weights.vector])
    noise = [tf.constant(one) for one in HostNoise(3).draw(5, noise_widths(weights.layers))]

    def outputs(vector):
        return weights.call(weights.split(vector), obs, noise=noise)

    mapped = tf.vectorized_map(outputs, vectors)
    for agent in range(2):
        np.testing.assert_allclose(mapped[agent], outputs(vectors[agent]), rtol=1e-4, atol=1e-5)
        for row in range(5):
            noisy = weights.with_noise(weights.split(vectors[agent]), [one[row] for one in noise])
            alone = weights.call(noisy, obs[row : row + 1])
            np.testing.assert_allclose(mapped[agent, row], alone[0], rtol=1e-4, atol=1e-5)


class Halved(DuelingMLP):
    """A subclass of the user's whose methods know no noise."""

    def features(self, obs, training=False):
        return super().features(obs / 2, training)

    def call(self, obs, training=False):
        return super().call(obs, training)


class WithHead(DuelingMLP):
    """A subclass with one more head."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.more = keras.layers.Dense(self.num_actions)

    def call(self, obs, training=False):
        return super().call(obs, training) + self.more(self.features(obs, training))


@pytest.mark.parametrize("kind", [Halved, WithHead])
def test_a_subclass_without_noise_in_its_methods_learns_with_noise(kind):
    network = kind(3, (9, 7), noise_scale=0.5)
    network.build((None, 4))
    assert all(layer.built for layer in network.layers)  # so a file with its weights can be read
    weights, obs = NoisyWeights(network), tf.constant(observations(5))
    noise = [tf.constant(one) for one in HostNoise(3).draw(5, noise_widths(weights.layers))]
    current = weights.split(weights.vector)
    rows = weights.call(current, obs, noise=noise)
    for row in range(5):
        noisy = weights.with_noise(current, [one[row] for one in noise])
        alone = weights.call(noisy, obs[row : row + 1])
        np.testing.assert_allclose(rows[row], alone[0], rtol=1e-4, atol=1e-5)


def test_a_noisy_layer_of_several_vectors_a_row_has_each_rows_noise_in_numpy():
    inputs = keras.Input([2, 4])
    network = keras.Model(inputs, keras.layers.Flatten()(NoisyDense(3, "tanh")(inputs)))
    actor = HostActor(network, ActionValues(6), tf.TensorSpec([2, 4]))
    assert actor.numpy_network is not None
    obs, weights = observations(10).reshape(5, 2, 4), NoisyWeights(network)
    noise = HostNoise(3).draw(5, noise_widths(weights.layers))
    expected = weights.call(
        weights.split(weights.vector), tf.constant(obs), noise=list(map(tf.constant, noise))
    )
    np.testing.assert_allclose(HostNoise(3).params(actor, obs), expected, rtol=1e-4, atol=1e-5)
