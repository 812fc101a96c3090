"""What a decoder is given, and what it writes."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.search.text.teacher_forcing import (
    decoder_inputs,
    most_draws,
    most_probable,
    right_tokens,
    sampled_inputs,
)
from kytolly.search.text.vocabulary import BEGIN, END, PADDING, UNKNOWN
from kytolly.search.text.writing import greedy_tokens

TARGET = tf.constant([[5, 6, 7, 2], [8, 2, 0, 0]])
LIKELY = tf.constant([[4, 5, 7, 2], [8, 9, 9, 9]])
LOGITS = tf.one_hot(LIKELY, 10)
LAST = [0.0, 1.0, 2.0, 3.0]


def test_inputs_are_the_tokens_before():
    np.testing.assert_array_equal(decoder_inputs(TARGET), [[1, 5, 6, 7], [1, 8, 2, 0]])


def sampled(own, most):
    """The inputs where the last layer of the decoder gives the logits as they are."""
    asked = []

    def logits(rows):
        asked.append(rows.shape[0])
        return rows

    found = sampled_inputs(TARGET, LOGITS, own, most, logits)
    assert asked == [most]
    return found


@pytest.mark.parametrize("most", [4, 8])
def test_guesses_stand_where_the_draw_says_so_and_never_for_padding(most):
    own = tf.constant([[True, False, True, True], [False, True, True, True]])
    # The last token of a row is no input. Row 0: guesses 4 and 7 at places 0 and 2; row 1: 9 at 1.
    np.testing.assert_array_equal(sampled(own, most), [[1, 4, 6, 7], [1, 8, 9, 0]])
    none = tf.zeros_like(own)
    np.testing.assert_array_equal(sampled(none, most), decoder_inputs(TARGET))


def test_where_more_are_drawn_than_there_is_room_for_the_last_ones_stay():
    own = tf.constant([[True, False, True, True], [False, True, True, True]])
    np.testing.assert_array_equal(sampled(own, 1), [[1, 4, 6, 7], [1, 8, 2, 0]])


def test_there_is_room_for_what_is_drawn():
    random = np.random.default_rng(0)
    for count, share in ((20, 0.25), (704, 0.25), (704, 0.9)):
        hits = (random.random((10_000, count)) < share).sum(axis=1)
        assert hits.max() <= most_draws(count, share) <= count
    assert most_draws(704, 0.25) == 245 and most_draws(9, 1.0) == 9 and most_draws(9, 0.0) == 0


@pytest.mark.parametrize("xla", [False, True])
def test_the_most_probable_is_the_first_of_the_largest(xla):
    logits = tf.constant([[[0.0, 3.0, 1.0, 3.0], [-1.0, -2.0, -1.0, -3.0]], [[0.0] * 4, LAST]])
    found = tf.function(most_probable, jit_compile=xla)(logits)
    np.testing.assert_array_equal(found, tf.argmax(logits, axis=-1))
    nothing = most_probable(tf.fill([1, 4], np.nan))  # a number of a token, whatever happens
    assert 0 <= int(nothing[0]) < 4


def test_padding_is_neither_right_nor_counted():
    np.testing.assert_array_equal(right_tokens(LOGITS, TARGET), [[2, 4], [1, 2]])


class Preferences:
    """A decoder that prefers 1, 3, 0, 2, then 5 to 9; after 6 it would rather end."""

    vocabulary, states = 10, ()

    def encode(self, source):
        return self

    def step(self, token, states, memory):
        logits = tf.constant([[8.0, 9.0, 3.0, 9.0, 0.0, 7.0, 6.0, 5.0, 4.0, 3.0]])
        after = tf.cast(token == 5, tf.float32)[:, tf.newaxis] * tf.one_hot([END], 10) * 9.0
        return logits + after, states


def written(source, distinct):
    tokens, scores = greedy_tokens(Preferences(), tf.constant(source), 3, distinct)
    return tokens.numpy(), scores.numpy()


def test_different_words_are_written_but_none_of_the_source():
    tokens, scores = written([[4, 0], [5, 7]], distinct=True)
    np.testing.assert_array_equal(tokens, [[5, 6, 7], [6, 8, 9]])
    # Log-probabilities are the network's: 0, 1 and 3, which may not come, keep their share.
    logits = np.array([8.0, 9.0, 3.0, 9.0, 0.0, 7.0, 6.0, 5.0, 4.0, 3.0])
    np.testing.assert_allclose(scores[1], (logits - np.log(np.exp(logits).sum()))[[6, 8, 9]], 1e-5)
    assert not {PADDING, BEGIN, END, UNKNOWN} & set(tokens.ravel())


def test_a_text_may_say_a_word_of_the_source_and_end():
    np.testing.assert_array_equal(written([[5, 6]], distinct=False)[0], [[5, END, 5]])
