"""Acting on the host: the NumPy twin has the weights that it was given, each in its place."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.acting import HostActor, mask_params, packed_weights
from kytolly.model.actor_critic_mlp import ActorCriticMLP, ObservationFeatures
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.policy.distributions import Categorical
from kytolly.policy.weights import FlatWeights

SPEC = tf.TensorSpec([4], tf.float32)
OBS = np.random.default_rng(0).normal(2.0, 3.0, (7, 4)).astype(np.float32)


def normalized():
    """Its statistics come first among its weights, and last among what is packed."""
    return ActorCriticMLP(3, (8,), features=ObservationFeatures(normalizes=True))


def make_actor(make):
    network = make()
    network(OBS)
    return network, HostActor(network, Categorical(3), SPEC)


def change(network):
    rng = np.random.default_rng(1)
    network.set_weights([w + rng.random(w.shape) for w in network.get_weights()])


@pytest.mark.parametrize("make", [normalized, lambda: DQNMLP(3, (8,))], ids=["ppo", "dqn"])
def test_a_refreshed_twin_has_the_networks_weights(make):
    network, actor = make_actor(make)
    change(network)
    expected = tf.nest.flatten(network(OBS))[0]
    assert np.abs(actor.params(OBS) - expected).max() > 1e-2  # not yet
    actor.refresh()
    for rows in (7, 2, 1):  # biases are kept for one number of rows
        np.testing.assert_allclose(actor.params(OBS[:rows]), expected[:rows], atol=1e-5)


def test_a_twin_takes_the_weights_that_a_policy_packs():
    network, actor = make_actor(normalized)
    flat = FlatWeights(network)
    network.update_statistics(OBS)
    flat.vector.assign_sub(tf.linspace(0.0, 1.0, flat.vector.shape[0]))
    actor.take(packed_weights(flat).numpy())
    expected = flat.call(flat.split(flat.vector), OBS)[0]
    np.testing.assert_allclose(actor.params(OBS), expected, atol=1e-4)


def test_network_outputs_see_new_weights_at_once_and_greedy_after_a_refresh():
    network, actor = make_actor(lambda: DQNMLP(3, (8,)))
    bias = np.eye(3)[2] * 100.0
    network.q_values.bias.assign(bias)
    np.testing.assert_allclose(actor.network_outputs(OBS), network(OBS), atol=1e-5)
    assert (actor.network_outputs(OBS).argmax(axis=1) == 2).all()
    assert (actor.greedy(OBS) != 2).any()
    actor.refresh()
    assert (actor.greedy(OBS) == 2).all()


def test_params_of_forbidden_actions_are_too_low_to_be_taken():
    mask = np.array([[True, False], [False, True]])
    found = mask_params(np.array([[1.0, 5.0], [5.0, 1.0]], np.float32), {"action_mask": mask})
    np.testing.assert_array_equal(found.argmax(axis=1), [0, 1])
    assert (found[~mask] == -1e9).all() and (found[mask] == 1.0).all()
