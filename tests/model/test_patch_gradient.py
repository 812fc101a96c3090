"""Gradients by patches are those of the convolution."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.patch_gradient import patch_convolution


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize(
    "side,size,stride,padding",
    [(12, 8, 4, "valid"), (15, 4, 2, "valid"), (9, 3, 1, "valid"), (7, 3, 1, "same")],
)
def test_the_gradient_is_that_of_the_convolution(side, size, stride, padding, compiled):
    """15 pixels are one more than patches of 4 by strides of 2 cover."""
    layer = keras.layers.Conv2D(5, size, stride, padding, activation="relu")
    layer.build((None, side, side + stride, 3))
    layer.bias.assign(np.linspace(-0.1, 0.1, 5))
    rng = np.random.default_rng(0)
    images = tf.constant(rng.normal(size=(2, side, side + stride, 3)).astype(np.float32))

    def gradients(function):
        with tf.GradientTape() as tape:
            tape.watch(images)
            features = function(images)
            loss = tf.reduce_sum(tf.sin(3.0 * features))
        return features, *tape.gradient(loss, [images, layer.kernel.value, layer.bias.value])

    expected = gradients(layer)
    program = tf.function(
        lambda: gradients(lambda x: patch_convolution(layer, x)), jit_compile=compiled
    )
    for found, wanted in zip(program(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(expected[1]).max() > 0.1


def test_a_kernel_that_strides_do_not_divide_is_keras_own(monkeypatch):
    layer = keras.layers.Conv2D(2, 3, 2)
    images = np.ones((1, 7, 7, 1), np.float32)
    np.testing.assert_array_equal(patch_convolution(layer, images), layer(images))
