import json

import numpy as np
import pytest

from kytolly.search.text.vocabulary import (
    BEGIN,
    END,
    PADDING,
    SPECIAL,
    UNKNOWN,
    BytePairs,
    Words,
    read_vocabulary,
    text_tokens,
    write_vocabulary,
)

TEXTS = ["A cell is a unit.", "The unit of life is the cell!", "日本 </s> naïve"]


@pytest.mark.parametrize("make", [BytePairs, lambda: BytePairs.of(TEXTS)], ids=["all", "some"])
def test_any_text_comes_back_from_its_byte_pairs(make):
    vocabulary = make()
    tokens = vocabulary.encode([*TEXTS, ""])
    assert [vocabulary.decode(row) for row in tokens] == [*TEXTS, ""]
    assert all(row.dtype == np.int32 for row in tokens)
    assert min(row.min() for row in tokens[:3]) > UNKNOWN  # the text "</s>" does not end one


def test_only_the_most_frequent_byte_pairs_are_kept():
    vocabulary = BytePairs.of(["cell cell unit", "cell"], most=5)
    assert vocabulary.size == 5
    (tokens,) = vocabulary.encode(["cell unit"])
    assert tokens.tolist() == [4, UNKNOWN] and vocabulary.decode(tokens) == "cell"


def test_embeddings_of_kept_byte_pairs_are_those_of_wordllama():
    whole, some = BytePairs(), BytePairs.of(TEXTS)
    (number,), (other,) = whole.encode(["cell"])[0], some.encode(["cell"])[0]
    np.testing.assert_array_equal(whole.embedding()[number], some.embedding()[other])
    assert some.embedding().shape == (some.size, 256) and not some.embedding()[:4].any()


def test_tokens_of_some_texts_come_first_and_no_token_is_lost():
    whole = BytePairs()
    texts = [text_tokens(whole, part, 99) for part in (["cell unit", "cell"], ["unit life", "a"])]
    vocabulary, seen, (first, second) = BytePairs.seen_first(*texts)
    assert seen == 4 + 4 and vocabulary.size == whole.size  # cell, unit, life, a
    assert sorted({*first.tokens, *second.tokens}) == [4, 5, 6, 7]
    assert [vocabulary.decode(row) for row in vocabulary.encode(TEXTS)] == TEXTS
    (again,) = vocabulary.encode(["unit life"])
    np.testing.assert_array_equal(again, second.tokens[: len(again)])


def test_words_are_numbered_by_their_frequency():
    vocabulary = Words.of(TEXTS, most=8)  # two of each: a, cell, is, the (and unit, left out)
    assert [row.tolist() for row in vocabulary.encode(["The CELL, a life"])] == [[7, 5, 4, UNKNOWN]]
    assert vocabulary.decode([BEGIN, 7, 5, UNKNOWN, PADDING, END, 4]) == "the cell"


def test_a_word_is_the_same_however_its_accent_was_typed():
    vocabulary = Words.of(["caf\u00e9 noir", "caf\u00e9"])
    (row,) = vocabulary.encode(["cafe\u0301"])
    assert vocabulary.decode(row.tolist()) == "caf\u00e9"


@pytest.mark.parametrize("made", [Words.of(TEXTS), BytePairs.of(TEXTS), BytePairs()])
def test_a_vocabulary_is_read_as_it_was_written(made, tmp_path):
    read = read_vocabulary(write_vocabulary(made, tmp_path / "vocabulary.json"))
    assert read.identity == made.identity and read.size == made.size
    assert [row.tolist() for row in read.encode(TEXTS)] == [r.tolist() for r in made.encode(TEXTS)]


def test_the_vocabulary_of_another_tokenizer_is_refused(tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(BytePairs().settings() | {"identity": "byte-pairs 0 0"}))
    with pytest.raises(ValueError, match="of another tokenizer") as error:
        read_vocabulary(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"kind": "words", "words": ["a", "a"], "identity": ""}']
    + [f'{{"kind": "byte-pairs", "kept": {kept}, "identity": ""}}' for kept in ("[1]", "[5, 5]")]
    + ['{"kind": "byte-pairs", "kept": [99999999], "identity": ""}', "null", '{"kind": "words"}'],
)
def test_what_is_no_vocabulary_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"is no vocabulary|cannot be read") as error:
        read_vocabulary(path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read"):
        read_vocabulary(tmp_path / "missing.json")


def test_the_tokens_of_some_texts_come_first_and_mean_the_same():
    whole, texts = BytePairs(), ["a red apple", "wheels"]
    tokens = text_tokens(whole, texts, 8)
    ordered, learned, (again,) = BytePairs.seen_first(tokens)
    assert ordered.size == whole.size
    assert learned == SPECIAL + len(set(tokens.tokens[tokens.tokens >= SPECIAL]))
    assert again.tokens.max() < learned
    np.testing.assert_array_equal(again.tokens, text_tokens(ordered, texts, 8).tokens)
    np.testing.assert_array_equal(
        ordered.first_vectors()[again.tokens], whole.first_vectors()[tokens.tokens]
    )
    (unseen,) = ordered.encode(["zebra"])
    assert (unseen >= learned).any()
