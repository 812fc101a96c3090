"""Convolutions, and their gradients, by matrix products are those of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.dqn_mlp import DQNMLP
from kytolly.model.matmul_conv2d import MatmulConv2D, MatmulGradientConv2D
from kytolly.model.nature_cnn import GridCNN, NatureCNN

CASES = [
    (MatmulConv2D, 6, 3, 1, "same"),
    (MatmulConv2D, 6, 3, 1, "valid"),
    (MatmulGradientConv2D, 12, 8, 4, "valid"),
    (MatmulGradientConv2D, 15, 4, 2, "valid"),  # one pixel more than the patches cover
    (MatmulGradientConv2D, 9, 3, 1, "valid"),
    (MatmulGradientConv2D, 7, 3, 1, "same"),
    (MatmulGradientConv2D, 12, 4, 2, "same"),
    (MatmulGradientConv2D, 11, 4, 2, "same"),
    (MatmulGradientConv2D, 9, 8, 4, "same"),
    (MatmulGradientConv2D, 6, 2, 2, "same"),
    (MatmulGradientConv2D, 7, 3, 2, "valid"),  # strides that do not divide the kernel: Keras's own
]


@pytest.mark.parametrize("kind,side,size,stride,padding", CASES)
def test_outputs_and_gradients_are_those_of_keras(kind, side, size, stride, padding):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(2, side, side + stride, 3)), tf.float32)
    results = []
    for made in (kind, keras.layers.Conv2D):
        layer = made(5, size, stride, padding, activation="relu")
        layer.build(x.shape)
        weights = np.random.default_rng(1)
        layer.set_weights([weights.normal(0.0, 0.3, w.shape) for w in layer.get_weights()])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(tf.sin(3.0 * y))
        results.append([y, *tape.gradient(loss, [x, *layer.trainable_variables])])
        assert y.shape == layer.compute_output_shape(x.shape)
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert np.abs(results[0][1]).max() > 0.1


def test_the_gradient_compiles():
    layer = MatmulGradientConv2D(5, 4, 2, activation="relu")
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 9, 8, 3)), tf.float32)
    layer.build(x.shape)

    def gradient():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(3.0 * layer(x)))
        return tape.gradient(loss, x)

    compiled = tf.function(gradient, jit_compile=True)
    np.testing.assert_allclose(compiled(), gradient(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("torso, dtype", [(GridCNN, bool), (NatureCNN, np.uint8)])
def test_files_know_the_weights_by_the_name_of_kerass_convolution(torso, dtype, tmp_path):
    model = DQNMLP(3, (8,), torso())
    model(np.zeros((2, 5, 5, 2), dtype))
    model.save_weights(tmp_path / "torso.weights.h5")
    import h5py

    with h5py.File(tmp_path / "torso.weights.h5") as file:
        names: list[str] = []
        file.visit(names.append)
    assert any("convolutions/conv2d/" in name for name in names)
