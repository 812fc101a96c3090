"""The network of a text classifier."""

import keras
import numpy as np
import pytest

from kytolly.search.model.text_classifier import TextClassifierNetwork


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(0)
    made = TextClassifierNetwork(20, 3, dimension=4, filters=5, kernel_size=3, dropout=0.5)
    made.build((None, None))
    for weight in made.trainable_variables:  # no bias stays 0
        weight.assign(keras.random.normal(weight.shape, 0.0, 0.5))
    return made


@pytest.mark.parametrize("length", [4, 7, 32])
def test_padding_changes_nothing(network, length):
    tokens = np.array([[3, 7, 7, 19], [5, 0, 0, 0]])
    padded = np.pad(tokens, [(0, 0), (0, length - 4)])
    np.testing.assert_allclose(network(padded), network(tokens), atol=1e-6)
    assert np.abs(network(tokens)[0] - network(tokens)[1]).max() > 1e-3


def test_the_order_of_tokens_matters_and_an_empty_text_is_finite(network):
    forward, backward = np.asarray(network(np.array([[3, 7, 9], [9, 7, 3]])))
    assert np.abs(forward - backward).max() > 1e-4
    np.testing.assert_allclose(network(np.zeros((1, 4), int))[0], network.head.bias)


def test_noise_below_the_share_drops_a_feature_and_the_others_grow(network):
    tokens = np.array([[3, 7, 9]])
    kept = network.num_features // 2
    noise = np.where(np.arange(network.num_features) < kept, 0.5, 0.49)[np.newaxis]
    kernel, bias = (np.asarray(weight) for weight in network.head.weights)
    only = network(tokens) - bias  # of all features; the head is linear, so halves add up
    first = network(tokens, noise=noise) - bias
    second = network(tokens, noise=np.where(noise < 0.5, 0.5, 0.49)) - bias
    np.testing.assert_allclose(first + second, 2.0 * only, atol=1e-5)  # 1 / (1 - 0.5)
    assert np.abs(first - second).max() > 1e-4 and kernel.shape == (14, 3)


def test_a_saved_network_is_the_same_and_keeps_its_token_vectors_fixed(tmp_path):
    made = TextClassifierNetwork(20, 3, dimension=4, filters=5, train_embedding=False)
    made.build((None, None))
    assert made.embedding.embeddings.path not in {one.path for one in made.trainable_variables}
    made.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras", compile=False)
    tokens = np.array([[1, 2, 3, 0]])
    np.testing.assert_array_equal(again(tokens), made(tokens))
    assert not again.train_embedding


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_the_product_is_keras_convolution(width):
    made = TextClassifierNetwork(20, 3, dimension=4, filters=5, kernel_size=width)
    made.build((None, None))
    vectors = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    (kernel,), bias = made.products.get_weights(), np.arange(5, dtype=np.float32)
    made.bias.assign(bias)
    convolution = keras.layers.Conv1D(5, width, padding="same")
    convolution.build((None, None, 4))
    convolution.set_weights([kernel.reshape(4, width, 5).transpose(1, 0, 2), bias])
    np.testing.assert_allclose(made.convolve(vectors), convolution(vectors), atol=1e-5)


def test_a_token_that_training_lacks_keeps_its_vector_and_is_no_key():
    made = TextClassifierNetwork(20, 3, dimension=4, filters=5, pair_buckets=8, seen=6)
    made.build((None, None))
    assert made.embedding.embeddings.shape == (6, 4) and made.bag.table.shape == (6 + 8, 3)
    table = np.arange(80.0).reshape(20, 4)
    made.embedding.assign(table)
    np.testing.assert_array_equal(made.embedding(np.array([[5, 6, 19]])), table[[[5, 6, 19]]])
    keys = np.asarray(made.bag.keys(np.array([[5, 19]])))  # 5 and a pair, whose keys begin at 6
    assert keys.max() < 14 and (keys != 0).sum() == 2 and 5 in keys
