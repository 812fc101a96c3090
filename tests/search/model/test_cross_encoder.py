"""The network of a re-ranker."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.model.cross_encoder import CrossEncoder, token_sequence, without_dropped
from kytolly.search.model.text_matches import PAIR_FEATURES

SIZES = {"dimension": 6, "width": 8, "layers": 2, "heads": 2, "dropout": 0.3}


def make_network(**changes):
    keras.utils.set_random_seed(0)
    made = CrossEncoder(20, 16, **(SIZES | changes))
    made.build()
    for weight in made.weights:
        if weight.dtype == "float32":  # no bias stays 0
            weight.assign(keras.random.normal(weight.shape, 0.0, 0.5))
    made.rarity.assign(np.linspace(0.1, 1.0, 20))
    made.spread.assign(np.linspace(0.5, 2.0, PAIR_FEATURES))
    return made


@pytest.fixture(scope="module")
def network():
    return make_network()


QUESTION = np.array([[5, 7, 9], [5, 0, 0]])
CONTEXT = np.array([[7, 8, 6, 5], [12, 5, 0, 0]])


def test_the_tokens_are_those_of_both_texts_between_marks():
    tokens, segment = token_sequence(QUESTION, CONTEXT)
    assert np.asarray(tokens)[0].tolist() == [1, 5, 7, 9, 2, 7, 8, 6, 5, 2]
    assert np.asarray(tokens)[1].tolist() == [1, 5, 0, 0, 2, 12, 5, 0, 0, 2]
    assert np.asarray(segment)[1].tolist() == [0] * 5 + [1] * 5


def test_padding_changes_nothing(network):
    scores = np.asarray(network({"question": QUESTION, "context": CONTEXT}))
    longer = {
        "question": np.pad(QUESTION, [(0, 0), (0, 5)]),
        "context": np.pad(CONTEXT, [(0, 0), (0, 9)]),
    }
    np.testing.assert_allclose(network(longer), scores, atol=1e-5)
    alone = {"question": QUESTION[1:, :1], "context": CONTEXT[1:, :2]}
    np.testing.assert_allclose(network(alone), scores[1:], atol=1e-5)
    assert abs(scores[0] - scores[1]) > 1e-3


def test_order_segments_and_each_text_matter(network):
    pairs = [
        ([5, 7, 9], [7, 8, 6, 5]),
        ([9, 7, 5], [7, 8, 6, 5]),
        ([5, 7, 9], [5, 6, 8, 7]),
        ([5, 7, 7], [7, 8, 6, 5]),
        ([5, 7, 9], [7, 8, 6, 6]),
    ]
    found = network(
        {
            name: np.array(rows)
            for name, rows in zip(("question", "context"), zip(*pairs, strict=True), strict=True)
        }
    )
    assert np.diff(np.sort(np.asarray(found))).min() > 1e-4


def test_what_both_texts_share_comes_from_their_tokens(network):
    table = np.zeros((20, 6), np.float32)
    table[5, 0], table[7, 1], table[8, 0], table[8, 1] = 2.0, 1.0, 3.0, 4.0
    made = make_network()
    made.embedding.assign(table)
    made.rarity.assign(np.arange(20) / 20)
    question, context, pair = made.matches(np.array([[5, 7, 0]]), np.array([[8, 7]]))
    rare, common = 7 / 20, 5 / 20
    expected = [[0.6, 0.0, common, 0.0], [1.0, 1.0, rare, rare], [0.0] * 4]  # 7 is there, 5 is not
    np.testing.assert_allclose(question[0], expected, atol=1e-6)
    np.testing.assert_allclose(context[0, 0], [0.8, 0.0, 8 / 20, 0.0], atol=1e-6)
    assert pair.shape == (1, PAIR_FEATURES)


def test_without_blocks_the_score_is_a_weighted_sum_of_what_both_share():
    made = make_network(layers=0)
    inputs = {"question": QUESTION, "context": CONTEXT}
    pair = np.asarray(made.matches(QUESTION, CONTEXT)[2])
    weights = np.asarray(made.shared.kernel)[:, 0]
    expected = (pair - np.asarray(made.center)) / np.asarray(made.spread) @ weights
    np.testing.assert_allclose(made(inputs), expected, rtol=1e-4)
    assert {one.name for one in made.trainable_variables} == {"kernel", "first_scale"}


def test_empty_texts_have_finite_scores(network):
    empty = {"question": np.zeros((1, 3), int), "context": np.zeros((1, 4), int)}
    assert np.isfinite(np.asarray(network(empty))).all()


def test_noise_drops_the_same_numbers_at_all_places(network):
    inputs = {"question": QUESTION, "context": CONTEXT}
    scores = np.asarray(network(inputs))
    np.testing.assert_array_equal(network(inputs, training=True), scores)
    noise = np.random.default_rng(0).random((2, *network.noise_shape)).astype(np.float32)
    assert np.abs(network(inputs, noise=noise) - scores).max() > 1e-4
    values = np.ones((1, 3, 2), np.float32)
    dropped = without_dropped(values, np.array([[[0.1, 0.6]]], np.float32), 0.2)
    np.testing.assert_allclose(dropped[0], [[0.0, 1.25]] * 3)


def test_recomputed_activations_have_the_same_gradient():
    found = []
    for recompute in (False, True):
        made = make_network(recompute=recompute, dropout=0.0)
        variables = [weight.value for weight in made.trainable_variables]

        def gradient(made=made, variables=variables):
            with tf.GradientTape() as tape:
                tape.watch(variables)
                scores = made({"question": QUESTION, "context": CONTEXT}, training=True)
                loss = tf.reduce_sum(tf.square(scores))
            nothing = tf.UnconnectedGradients.ZERO  # first_scale has no part in the score
            made_of = tape.gradient(loss, variables, unconnected_gradients=nothing)
            return [tf.convert_to_tensor(part) for part in made_of]

        found.append(tf.function(gradient, autograph=False)())
    for value, expected in zip(*found, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_a_saved_network_is_the_same_and_keeps_its_token_vectors_fixed(network, tmp_path):
    network.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras", compile=False)
    inputs = {"question": QUESTION, "context": CONTEXT}
    np.testing.assert_array_equal(again(inputs), network(inputs))
    paths = {one.path for one in again.trainable_variables}
    assert again.embedding.embeddings.path not in paths and len(paths) > 20
    assert make_network(train_embedding=True).embedding.trainable_variables
