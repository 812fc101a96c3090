import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from kytolly.search.index import embedding
from kytolly.search.index.embedding import (
    EmbeddingCache,
    HashEncoder,
    WordLlamaEncoder,
    make_encoder,
    padded_batches,
    text_key,
)


class CountingEncoder:
    """Length and first letter; remembers what it was asked for."""

    identity, dimension = "counting-1", 2

    def __init__(self):
        self.calls = []

    def encode(self, texts):
        self.calls.append(list(texts))
        return np.array([[len(text), ord(text[0])] for text in texts], np.float32)


def test_a_batch_encodes_each_missing_text_once_and_keeps_the_order():
    encoder = CountingEncoder()
    cache = EmbeddingCache(encoder, 10)
    np.testing.assert_array_equal(cache.get_batch(["b"]), [[1, 98]])
    vectors = cache.get_batch(["aa", "b", "aa", "cc"])
    np.testing.assert_array_equal(vectors, [[2, 97], [1, 98], [2, 97], [2, 99]])
    assert encoder.calls == [["b"], ["aa", "cc"]]
    assert (cache.hits, cache.misses) == (2, 3)  # "b", and "aa" the second time
    assert cache.hit_rate == pytest.approx(2 / 5)


def test_texts_of_unlike_length_go_to_the_encoder_apart():
    encoder = CountingEncoder()
    words = ["ab", "c" * 16, "d" * 31]
    EmbeddingCache(encoder, 10).get_batch(["x" * 100, *words, "y" * 90])
    assert encoder.calls == [words, ["x" * 100, "y" * 90]]


def test_the_least_recently_used_leaves_first():
    encoder = CountingEncoder()
    cache = EmbeddingCache(encoder, 2)
    for texts in (["a", "b"], ["a"], ["c"]):  # "b" is the oldest use
        cache.get_batch(texts)
    cache.get_batch(["a", "c"])
    cache.get_batch(["b"])
    assert encoder.calls == [["a", "b"], ["c"], ["b"]]


def test_a_batch_larger_than_the_cache_is_answered_whole():
    cache = EmbeddingCache(CountingEncoder(), 2)
    cache.get_batch(["a"])
    vectors = cache.get_batch(["b", "c", "d", "a", "b"])
    np.testing.assert_array_equal(vectors[:, 1], [98, 99, 100, 97, 98])


def test_what_it_returns_can_be_changed_without_changing_the_cache():
    cache = EmbeddingCache(CountingEncoder(), 2)
    cache.get_batch(["a"])[:] = 0
    np.testing.assert_array_equal(cache.get_batch(["a"]), [[1, 97]])


def test_threads_share_a_cache_and_encode_each_text_once():
    encoder = CountingEncoder()
    cache = EmbeddingCache(encoder, 1000)
    texts = [chr(97 + n % 26) * (n // 26 + 1) for n in range(200)]

    def ask(seed):
        order = np.random.default_rng(seed).permutation(200)
        for first in range(0, 200, 20):
            part = [texts[n] for n in order[first : first + 20]]
            assert [len(text) for text in part] == cache.get_batch(part)[:, 0].tolist()

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    encoded = [text for call in encoder.calls for text in call]
    assert sorted(encoded) == sorted(texts)
    assert cache.hits + cache.misses == 800


def test_wrong_use_is_named():
    with pytest.raises(TypeError, match="expected a list"):
        EmbeddingCache(CountingEncoder(), 2).get_batch("text")
    with pytest.raises(ValueError, match="max_entries 0"):
        EmbeddingCache(CountingEncoder(), 0)
    with pytest.raises(ValueError, match="dimension is 0"):
        HashEncoder(0)
    with pytest.raises(ValueError, match="no encoder 'bert'"):
        make_encoder("bert")
    bad = CountingEncoder()
    bad.encode = lambda texts: np.full((len(texts), 2), np.nan)
    with pytest.raises(ValueError, match="finite: False"):
        EmbeddingCache(bad, 2).get_batch(["a"])


def test_hashed_vectors_have_length_1_and_are_alike_where_words_are():
    vectors = HashEncoder(512).encode(["Glacier caves", "glacial cave", "tax law", ""])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-6)
    assert vectors[0] @ vectors[1] > 0.15 > abs(vectors[0] @ vectors[2])


def test_hashed_vectors_are_the_same_everywhere():
    place, size = [1, 0, 1, -2, 0, 0, 0, 2], np.sqrt(10)
    np.testing.assert_allclose(HashEncoder(8).encode(["a cave"])[0], np.array(place) / size, 1e-5)
    assert text_key("a").hex() == "27c35e6e9373877f29e562464e46497e"


@pytest.fixture(scope="module")
def wordllama():
    pytest.importorskip("wordllama")
    return WordLlamaEncoder(256)


def test_wordllama_knows_related_words(wordllama):
    vectors = wordllama.encode(["doctor", "physician", "banana", " "])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], atol=1e-6)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert wordllama.encode([]).shape == (0, 256)


def test_a_batch_is_bounded_once_it_is_padded_and_what_is_larger_is_alone(monkeypatch):
    monkeypatch.setattr(embedding, "TEXTS_AT_ONCE", 3)
    monkeypatch.setattr(embedding, "BYTES_AT_ONCE", 100)
    # By size: 1 2 3 are 3 texts, 40 50 have 2 * 50 = 100 bytes, and with 60 they had 180.
    batches = list(padded_batches([60, 1, 101, 3, 2, 50, 40]))
    assert batches == [[1, 4, 3], [6, 5], [0], [2]]
    assert list(padded_batches([])) == []


def test_one_long_text_takes_memory_for_its_own_tokens_alone(wordllama):
    words = "glacier caves are carved by meltwater ".split()
    long = " ".join(words * 4_000)  # 152 kB, some 35,000 tokens
    texts = [long, *(f"{word} {number}" for number in range(10) for word in words)]
    tracemalloc.start()
    vectors = wordllama.encode(texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 61 texts of 35,000 tokens of 256 numbers in 4 bytes were 2.2 GB.
    assert peak < 2**27
    alone = wordllama._model.embed([long])
    # wordllama adds its 35,000 numbers in single precision.
    np.testing.assert_allclose(vectors[0], alone[0] / np.linalg.norm(alone), atol=1e-4)
    np.testing.assert_array_equal(vectors[1:], wordllama.encode(texts[1:]))


@pytest.mark.parametrize(
    "use",
    [
        "from kytolly.search.index.embedding import make_encoder; make_encoder('wordllama')",
        pytest.param(
            "from kytolly.search.text.vocabulary import BytePairs; BytePairs()",
            marks=pytest.mark.learning,
        ),
    ],
    ids=["encoder", "tokenizer"],
)
def test_wordllama_does_not_make_other_libraries_print(use):
    """It would set the root logger to INFO, and absl's lines would follow."""
    pytest.importorskip("wordllama")
    told = "import logging; logging.getLogger('absl').info('told')"
    words = [sys.executable, "-c", f"{use}\n{told}\nprint(logging.getLogger().handlers)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n" and "told" not in done.stderr


def test_wordllama_in_another_dimension_is_cut_or_rotated(wordllama):
    texts = ["doctor", "physician of the house", "banana"]
    full, fewer, more = (WordLlamaEncoder(size) for size in (256, 64, 512))
    leading = wordllama.encode(texts)[:, :64]
    leading /= np.linalg.norm(leading, axis=1, keepdims=True)
    np.testing.assert_allclose(fewer.encode(texts), leading, atol=1e-6)
    cosines = full.encode(texts) @ full.encode(texts).T
    np.testing.assert_allclose(more.encode(texts) @ more.encode(texts).T, cosines, atol=1e-5)
    assert more.encode(texts).shape == (3, 512)
    assert len({full.identity, fewer.identity, more.identity}) == 3


def test_auto_falls_back_to_hashing_and_a_name_does_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordllama", None)
    assert make_encoder("auto", 32).identity == "hash-1 32"
    with pytest.raises(ModuleNotFoundError, match=r"kytolly\[retrieval\]"):
        make_encoder("wordllama", 32)
