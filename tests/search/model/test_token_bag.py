"""The linear path of a text classifier."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.model.text_classifier import FACTOR, SCALE, TextClassifierNetwork, TokenBag

TEXT = [3, 7, 7, 3, 7]  # pairs: (3, 7) twice, (7, 7), (7, 3)


@pytest.fixture
def bag():
    made = TokenBag(10, 8, 2)
    made.build((None, None))
    idf, table = np.zeros(18, np.float32), np.full([18, 2], 100.0, np.float32)
    idf[[0, 3, 5, 7, 10, 14]] = 9, 1, 3, 2, 2, 4
    table[[3, 5, 7, 10, 14]] = [1, 0], [2, -1], [0, 1], [1, 1], [-1, 2]
    made.set_weights([table, idf])
    return made


def test_keys_are_different_tokens_and_hashed_pairs(bag):
    # 3 * 40503 + 7 and 7 * 40503 + 3 are 4 modulo 8, 7 * 40503 + 7 is 0; they follow 10 tokens.
    assert FACTOR == 40_503 and bag.num_keys == 18
    rows = np.asarray(bag.keys(np.array([[*TEXT, 0], [5, 0, 0, 0, 0, 0]])))
    assert [row[row != 0].tolist() for row in rows] == [[3, 7, 10, 14], [5]]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("padding", [0, 1, 20])
def test_logits_are_the_sum_weighted_by_idf_and_normalized(bag, compiled, padding):
    tokens = np.pad([TEXT, [5, 0, 0, 0, 0], [4, 0, 0, 0, 0], [0] * 5], [(0, 0), (0, padding)])
    found = (tf.function(bag, jit_compile=True) if compiled else bag)(tf.constant(tokens))
    # The idf 1, 2, 2, 4 have the norm 5; 1 [1, 0] + 2 [0, 1] + 2 [1, 1] + 4 [-1, 2] = [-1, 12].
    # One key alone has weight 1, whatever its idf; one without idf has none.
    expected = SCALE * np.array([[-0.2, 2.4], [2, -1], [0, 0], [0, 0]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_only_the_table_learns_and_a_network_begins_without_it(tmp_path):
    keras.utils.set_random_seed(0)
    made = TextClassifierNetwork(10, 2, dimension=4, filters=5, pair_buckets=8)
    made.build((None, None))
    tokens = np.array([TEXT])
    names = {weight.path for weight in made.trainable_variables}
    assert made.bag.table.path in names and made.bag.idf.path not in names
    first = np.asarray(made(tokens))
    made.bag.table.assign(np.arange(36.0).reshape(18, 2))
    made.bag.idf.assign(np.arange(18.0))
    np.testing.assert_allclose(made(tokens), first + made.bag(tokens), rtol=1e-5)
    assert np.abs(made.bag(tokens)).min() > 1.0
    made.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras", compile=False)
    np.testing.assert_array_equal(again(tokens), made(tokens))
