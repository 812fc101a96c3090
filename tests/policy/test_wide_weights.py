"""The form of a network's weights for a GPU: the same network in a few products."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import make_agent
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.model.actor_critic_mlp import ActorCriticMLP
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.distributional_mlp import AtomMLP
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.model.nature_cnn import GridCNN
from kytolly.model.normalized_mlp import NormalizedMLP
from kytolly.policy.ppo import PPOPolicy
from kytolly.policy.weights import FlatWeights, WideWeights, concatenate

VECTOR, GRID = (None, 4), (None, 5, 5, 3)


def noisy_gaussian():
    return ActorCriticMLP(4, (6, 5), "tanh", free_scales=2, scale_init=-1.0)


NETWORKS = {
    "two torsos": (lambda: ActorCriticMLP(3, (6, 5), "tanh"), VECTOR),
    "shared torso": (lambda: ActorCriticMLP(3, (6,), "relu", shared_torso=True), VECTOR),
    "free scales": (noisy_gaussian, VECTOR),
    "values": (lambda: DQNMLP(3, (6, 5)), VECTOR),
    "two streams": (lambda: DuelingMLP(3, (6, 5)), VECTOR),
    "atoms": (lambda: AtomMLP(2, (6, 5), None, 21, True, value_min=0.0, value_max=2.0), VECTOR),
    "images": (lambda: DQNMLP(3, (6,), GridCNN()), GRID),
    "noise": (lambda: DuelingMLP(3, (6, 5), noise_scale=0.5), VECTOR),
}


def built(make, shape, **options):
    network = make()
    network.build(shape)
    weights = FlatWeights(network, may_be_wide=True, **options)
    rng = np.random.default_rng(3)
    weights.vector.assign(0.3 * rng.normal(size=weights.vector.shape).astype(np.float32))
    return weights, tf.constant(rng.normal(size=(7, *shape[1:])), tf.float32)


def outputs_and_gradient(weights, obs, device):
    """What the network gives, and the gradient of the sum of its squares."""
    with tf.device(device):
        split = weights.split(weights.vector)
        with tf.GradientTape() as tape:
            tape.watch(split)
            outputs = tf.nest.flatten(weights.call(split, obs))
            loss = tf.add_n([tf.reduce_sum(tf.square(part)) for part in outputs])
        zero = tf.UnconnectedGradients.ZERO
        gradient = tape.gradient(loss, split, unconnected_gradients=zero)
        return split, outputs, weights.join(gradient)


@pytest.mark.parametrize("name", NETWORKS)
def test_wide_products_give_the_same_outputs_and_gradients(name):
    weights, obs = built(*NETWORKS[name])
    compiled = tf.function(outputs_and_gradient, jit_compile=True, autograph=False)
    plain, outputs, gradient = compiled(weights, obs, "/CPU:0")
    wide, wide_outputs, wide_gradient = compiled(weights, obs, "/GPU:0")
    assert isinstance(plain, list) and isinstance(wide, WideWeights)
    assert all(matrix.shape[0] % 16 == 0 for matrix in wide.matrices)
    for part, wide_part in zip(outputs, wide_outputs, strict=True):
        np.testing.assert_allclose(wide_part, part, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(wide_gradient, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["two torsos", "images", "noise"])
def test_the_wide_form_holds_every_weight_once(name):
    weights, _ = built(*NETWORKS[name])
    with tf.device("/GPU:0"):
        wide = tf.function(lambda: weights.split(weights.vector), autograph=False)()
    np.testing.assert_array_equal(weights.join(wide), weights.vector)
    np.testing.assert_array_equal(concatenate(weights.narrow(wide)), weights.vector)
    numbers = sum(int(tf.math.count_nonzero(part)) for part in tf.nest.flatten(wide))
    assert numbers == weights.vector.shape[0]


class OwnActorCritic(ActorCriticMLP):
    """A network of the user's, who knows nothing of wide products."""

    def call(self, obs, training=False):
        params, value = super().call(obs, training)
        return 2.0 * params, value


class OwnLayer(keras.layers.Dense):
    """A layer that computes something else."""

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs)


def with_own_layer():
    network = DQNMLP(3, (6,))
    network.q_values = OwnLayer(3)
    return network


def frozen():
    network = DQNMLP(3, (6,))
    network.q_values.trainable = False
    return network


@pytest.mark.parametrize(
    "make",
    [
        lambda: OwnActorCritic(3, (6,)),
        with_own_layer,
        frozen,
        lambda: NormalizedMLP(3, (6,)),
        lambda: DQNMLP(3, (2_000,)),
        lambda: ActorCriticMLP(3, (6,), "softmax"),
    ],
    ids=["call", "layer", "frozen", "norms", "wide", "activation"],
)
def test_other_networks_are_computed_layer_by_layer(make):
    weights, obs = built(make, VECTOR)
    compiled = tf.function(outputs_and_gradient, jit_compile=True, autograph=False)
    split, outputs, _ = compiled(weights, obs, "/GPU:0")
    assert isinstance(split, list)
    weights.publish()
    for part, expected in zip(outputs, tf.nest.flatten(weights.network(obs)), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-4)


def test_a_function_of_the_users_gets_every_weight_in_its_shape():
    weights, obs = built(*NETWORKS["values"])

    def doubled(obs):
        return 2.0 * weights.network(obs)

    @tf.function(autograph=False)
    def outputs():
        with tf.device("/GPU:0"):
            split = weights.split(weights.vector)
            return weights.call(split, obs), weights.call(split, obs, doubled)

    once, twice = outputs()
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-5)


class OwnPPO(PPOPolicy):
    """A policy of the user's, which may look at the weights."""


def test_a_policy_of_the_users_gets_a_list_of_weights():
    cfg = make_config({"algorithm": "ppo", "hidden_units": (8,)})
    ours = make_agent(cfg, CartPole().spec).policy
    own = OwnPPO(ours.network, ours.distribution, keras.optimizers.Adam(), cfg)

    @tf.function(autograph=False)
    def trace():
        with tf.device("/GPU:0"):
            return ours.current_weights(), own.current_weights()

    wide, plain = trace()
    assert isinstance(wide, WideWeights) and isinstance(plain, list)
