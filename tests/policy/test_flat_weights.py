"""Weights end to end are stepped as they would be one by one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.policy.flat_weights import FlatWeights, laid_end_to_end


def make_layer():
    keras.utils.set_random_seed(3)
    layer = keras.layers.Dense(3)
    layer.build((None, 5))
    return layer


@pytest.mark.parametrize(
    "make", [lambda: keras.optimizers.Adam(0.1), lambda: keras.optimizers.SGD(0.1, momentum=0.5)]
)
def test_steps_are_those_of_the_optimiser_weight_by_weight(make):
    one_by_one, together = make_layer(), make_layer()
    optimizer, flat = make(), FlatWeights(together.trainable_variables, make())
    rng = np.random.default_rng(0)
    for _ in range(3):
        grads = [tf.constant(rng.normal(size=w.shape), tf.float32) for w in one_by_one.weights]
        optimizer.apply(grads, one_by_one.trainable_variables)
        flat.step(laid_end_to_end(grads))
    for one, other in zip(one_by_one.weights, together.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_weights_that_somebody_else_sets_are_where_the_next_step_begins():
    layer = make_layer()
    flat = FlatWeights(layer.trainable_variables, keras.optimizers.SGD(1.0))
    layer.set_weights([np.full((5, 3), 2.0), np.full(3, 4.0)])
    flat.step(tf.ones([flat.size]))
    np.testing.assert_array_equal(layer.kernel, np.ones((5, 3)))
    np.testing.assert_array_equal(layer.bias, np.full(3, 3.0))
