"""Weights end to end are called, stepped and published as they would be one by one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from kytolly.agent.acting import packed_weights
from kytolly.config.dqn import DQNConfig
from kytolly.policy.optimizers import make_optimizer
from kytolly.policy.weights import FlatWeights, concatenate

OBS = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)


def make_network(*layers):
    keras.utils.set_random_seed(3)
    network = keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(3)])
    return network


def make_flat(*layers):
    network = make_network(*layers)
    return network, FlatWeights(network)


@pytest.mark.parametrize(
    "make", [lambda: keras.optimizers.Adam(0.1), lambda: keras.optimizers.SGD(0.1, momentum=0.5)]
)
def test_steps_are_those_of_the_optimizer_weight_by_weight(make):
    one_by_one, optimizer = make_network(), make()
    (together, flat), other = make_flat(), make()
    rng = np.random.default_rng(0)
    for _ in range(3):
        grads = [tf.constant(rng.normal(size=w.shape), tf.float32) for w in one_by_one.weights]
        optimizer.apply(grads, one_by_one.trainable_variables)
        other.apply([concatenate(grads)], [flat.variable])
    flat.publish()
    for one, other in zip(one_by_one.weights, together.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_call_is_the_networks_own_call_with_other_weights():
    network, flat = make_flat(keras.layers.Dense(4, "tanh"))
    flat.vector.assign_sub(tf.range(39.0) / 10.0)  # no two weights move alike
    before, found = network(OBS), flat.call(flat.split(flat.vector), OBS)
    flat.publish()
    np.testing.assert_allclose(found, network(OBS), rtol=1e-5)
    assert np.abs(found - before).max() > 0.1  # it was not the network's weights that were called


def test_weights_are_split_in_the_order_and_the_shapes_of_the_network():
    network, flat = make_flat()
    kernel, bias = flat.split(tf.range(18.0))
    np.testing.assert_array_equal(kernel, np.arange(15.0).reshape(5, 3))
    np.testing.assert_array_equal(bias, [15.0, 16.0, 17.0])
    np.testing.assert_array_equal(flat.vector[:15], np.ravel(network.weights[0]))


def test_weights_that_somebody_else_sets_are_where_the_next_step_begins():
    network, flat = make_flat()
    network.set_weights([np.full((5, 3), 2.0), np.full(3, 4.0)])
    flat.take()
    flat.vector.assign_sub(tf.ones([18]))
    np.testing.assert_array_equal(network.weights[0], np.full((5, 3), 2.0))  # not yet published
    flat.publish()
    np.testing.assert_array_equal(network.weights[0], np.ones((5, 3)))
    np.testing.assert_array_equal(network.weights[1], np.full(3, 3.0))


def test_a_call_moves_batch_statistics_only_in_training():
    network, flat = make_flat(keras.layers.BatchNormalization(momentum=0.5))
    mean = network.layers[0].moving_mean
    flat.call(flat.split(flat.vector), OBS, training=False)
    np.testing.assert_array_equal(mean, np.zeros(5))
    flat.call(flat.split(flat.vector), OBS, training=True)
    np.testing.assert_allclose(mean, 0.5 * OBS.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_dropout_takes_another_seed_at_every_call(maybe_compile, compiled):
    _, flat = make_flat(keras.layers.Dropout(0.5))
    call = maybe_compile(
        lambda: flat.call(flat.split(flat.vector), tf.constant(OBS), training=True), compiled
    )
    assert np.abs(call() - call()).max() > 0.01


def test_all_weights_are_packed_in_the_order_of_the_numpy_twin():
    _, flat = make_flat(keras.layers.BatchNormalization())
    # gamma, beta, kernel, bias; then the moving mean and variance
    packed = packed_weights(flat)
    assert packed.shape == [5 + 5 + 15 + 3 + 5 + 5]
    np.testing.assert_array_equal(packed[-10:], [0.0] * 5 + [1.0] * 5)
    np.testing.assert_array_equal(packed[:28], flat.vector)


@pytest.mark.parametrize("scale_loss", [False, True])
def test_a_traced_step_leaves_nothing_in_the_registry_of_gradients(scale_loss):
    """What is registered there lives for ever, and with it the graph and all its variables."""
    network, flat = make_flat()
    optimizer = make_optimizer(DQNConfig(), network, scale_loss)
    optimizer.build([flat.variable])
    before = list(ops.gradient_registry._registry)
    step = tf.function(lambda g: optimizer.apply([g], [flat.variable]))
    step.get_concrete_function(tf.TensorSpec(flat.vector.shape))
    assert list(ops.gradient_registry._registry) == before


@pytest.mark.parametrize("long", [30, 40_000])
@pytest.mark.parametrize("compiled", [False, True])
def test_parts_are_written_one_after_another(long, compiled):
    parts = [tf.reshape(tf.range(long * 2.0), [2, long]), tf.constant([-1.0, -2.0, -3.0])]
    joined = tf.function(concatenate, jit_compile=True) if compiled else concatenate
    np.testing.assert_array_equal(joined(parts), [*range(long * 2), -1.0, -2.0, -3.0])


def test_a_long_vector_is_no_concatenation_that_cores_divide():
    def program(long):
        function = tf.function(concatenate, jit_compile=True)
        lower = function.experimental_get_compiler_ir([tf.zeros([2, long]), tf.zeros([3])])
        return lower(stage="optimized_hlo")

    assert "concatenate(" in program(30) and "dynamic-update-slice(" not in program(30)
    assert "concatenate(" not in program(40_000)
