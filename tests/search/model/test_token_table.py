"""Vectors of tokens, of which some learn."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.model.token_table import TokenTable

TABLE = np.arange(1.0, 11.0, dtype=np.float32).reshape(5, 2)
TOKENS = tf.constant([[1, 4], [2, 2]])


def make_table(learned, **options):
    made = TokenTable(5, 2, learned, **options)
    made.build((None, None))
    made.assign(TABLE)
    return made


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("learned", [None, 0, 2, 3, 5])
def test_each_token_has_its_vector(learned, compiled):
    made = make_table(learned)
    found = (tf.function(made, jit_compile=True) if compiled else made)(TOKENS)
    np.testing.assert_array_equal(found, TABLE[TOKENS.numpy()])
    assert sum(np.prod(one.shape) for one in made.trainable_weights) == 2 * made.num_first


def test_the_gradient_reaches_the_first_tokens_only():
    made = make_table(3)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(made(TOKENS))
    (gradient,) = tape.gradient(loss, [made.embeddings.value])
    # Token 1 comes once and token 2 twice; token 4 does not learn.
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), [[0, 0], [1, 1], [2, 2]])


def test_vectors_learn_in_float32_where_the_rest_is_in_half_precision():
    made = make_table(3, dtype="mixed_bfloat16")
    assert made(TOKENS).dtype == tf.bfloat16
    assert [keras.backend.standardize_dtype(one.dtype) for one in made.weights] == [
        "float32",
        "float16",
    ]
