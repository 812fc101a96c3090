import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.recomputation import call_with_recomputation


def make_block():
    keras.utils.set_random_seed(0)
    block = keras.Sequential(
        [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    )
    block.build((None, 4))
    return block


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
def test_the_outputs_the_gradient_and_the_state_of_dropout_are_the_same(compiled):
    """Twice, because dropout must draw anew, but not between the outputs and their gradient."""
    x = tf.constant(np.random.default_rng(0).normal(size=(6, 4)), tf.float32)
    found = []
    for recompute in (False, True):
        block = make_block()
        variables = [weight.value for weight in block.trainable_variables]

        def step(x, block=block, variables=variables, recompute=recompute):
            with tf.GradientTape() as tape:
                tape.watch(x)
                if recompute:
                    outputs = call_with_recomputation(block, x, training=True)
                else:
                    outputs = block(x, training=True)
                loss = tf.reduce_sum(tf.square(outputs))
            return outputs, tape.gradient(loss, [x, *variables])

        step = tf.function(step, jit_compile=compiled, autograph=False)
        found.append([*tf.nest.flatten(step(x)), *tf.nest.flatten(step(x))])
    for value, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found[1][0], found[1][len(found[1]) // 2])


def test_activations_are_computed_twice():
    calls = []

    class Counting(keras.layers.Layer):
        def call(self, x):
            calls.append(1)
            return keras.ops.sin(x)

    layer, x = Counting(), tf.ones([2, 3])
    layer.build((None, 3))

    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(call_with_recomputation(layer, x))
        return tape.gradient(total, x)

    np.testing.assert_allclose(gradient(x), np.cos(np.ones((2, 3))), rtol=1e-5)
    assert len(calls) == 2


def test_a_layer_that_is_not_built_is_built():
    layer = keras.layers.Dense(2)
    assert call_with_recomputation(layer, tf.ones([1, 3])).shape == (1, 2) and layer.built
