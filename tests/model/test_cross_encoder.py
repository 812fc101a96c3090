"""The network of a re-ranker."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.cross_encoder import CrossEncoder, token_sequence

SIZES = {"dimension": 6, "width": 8, "layers": 2, "heads": 2, "dropout": 0.3}


def make_network(**changes):
    keras.utils.set_random_seed(0)
    made = CrossEncoder(20, 16, **(SIZES | changes))
    made.build()
    for weight in made.weights:
        if weight.dtype == "float32":  # no bias stays 0
            weight.assign(keras.random.normal(weight.shape, 0.0, 0.5))
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


def test_a_token_knows_the_nearest_one_of_the_other_text(network):
    table = np.zeros((20, 6), np.float32)
    table[5, 0], table[7, 1], table[8, 0], table[8, 1] = 2.0, 1.0, 3.0, 4.0
    made = make_network()
    made.embedding.set_weights([table])
    found = np.asarray(made.matches(*token_sequence(np.array([[5, 7, 0]]), np.array([[8, 7]]))))[0]
    expected = np.zeros((8, 2))  # [CLS] 5 7 0 [SEP] 8 7 [SEP]
    expected[1] = 0.6, 0.0
    expected[2] = expected[6] = 1.0, 1.0
    expected[5] = 0.8, 0.0  # with 7, not with 5, whose cosine is 0.6
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_empty_texts_have_finite_scores(network):
    empty = {"question": np.zeros((1, 3), int), "context": np.zeros((1, 4), int)}
    assert np.isfinite(np.asarray(network(empty))).all()


def test_dropout_is_for_training_only(network):
    inputs = {"question": QUESTION, "context": CONTEXT}
    np.testing.assert_array_equal(network(inputs), network(inputs))
    assert np.abs(network(inputs, training=True) - network(inputs)).max() > 1e-4


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
            return [tf.convert_to_tensor(part) for part in tape.gradient(loss, variables)]

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
