"""Texts as unit vectors, each computed once: encoders behind one protocol, and a cache."""

from __future__ import annotations

import collections
import functools
import hashlib
import importlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

KEY_BYTES = 16  # of a text's digest
ROWS_AT_ONCE = 1024  # texts that an encoder gets in one call
SHORT_BITS = 5  # texts of fewer characters than 2**5 are words, which are encoded together
WORDLLAMA_DIMENSION = 256
TEXTS_AT_ONCE = 64  # that wordllama gets in one call, padded to the longest
BYTES_AT_ONCE = 2**17  # of these texts once they are padded; a token has at least one
TOKENS_AT_ONCE = 2**14  # of a text that is longer than that


class Encoder(Protocol):
    """An encoder, as a cache needs it.

    Attributes:
        identity: Names the model and all that changes its vectors; saved vectors are bound to it.
        dimension: Length of a vector.
    """

    identity: str
    dimension: int

    def encode(self, texts: list[str]) -> np.ndarray:
        """[n, dimension] float32 of length 1, or 0 for a text in which there is nothing.

        A text's vector does not depend on the others, but for rounding.
        """
        ...


class WordLlamaEncoder:
    """Mean of a large language model's token embeddings, compressed; 10,000 short texts a second.

    The model's vectors have 256 numbers and are trained so that the leading numbers alone are a
    model too: a smaller dimension truncates them. A larger dimension applies a fixed random
    rotation into the larger space, which keeps every cosine.

    Args:
        dimension: Length of a vector.

    Source: WordLlama, github.com/dleemiller/WordLlama; Kusupati et al. 2022, "Matryoshka
    Representation Learning", arXiv:2205.13147.
    """

    def __init__(self, dimension: int = WORDLLAMA_DIMENSION):
        _check_dimension(dimension)
        try:
            wordllama = import_wordllama()
        except ImportError:
            raise ModuleNotFoundError(
                "The package wordllama is not installed, and its embeddings were asked for: "
                "pip install 'kytolly[retrieval]', or take HashEncoder, which needs no package."
            ) from None
        from importlib.metadata import version

        folder = Path(wordllama.__file__).parent  # the wheel holds the weights
        self._model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        self.dimension = dimension
        self.identity = f"wordllama-{version('wordllama')} l2_supercat {dimension}"

    def encode(self, texts: list[str]) -> np.ndarray:
        """[n, dimension] float32 of length 1, or 0 for a text without a token."""
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        # A blank text would be divided by its length, 0.
        given = [text if text.strip() else "." for text in texts]
        means = np.empty((len(given), WORDLLAMA_DIMENSION), np.float32)
        sizes = [len(text.encode()) for text in given]
        for rows in padded_batches(sizes):
            batch = [given[row] for row in rows]
            long = sizes[rows[0]] > BYTES_AT_ONCE
            means[rows] = self._mean(batch[0]) if long else self._model.embed(batch)
        vectors = _unit(_with_dimension(means, self.dimension))
        vectors[[not text.strip() for text in texts]] = 0.0
        return vectors

    def _mean(self, text: str) -> np.ndarray:
        """[256] mean of a long text's token embeddings, of which few are in memory at once."""
        table = self._model.embedding
        tokens = np.minimum(self._model.tokenize([text])[0].ids, len(table) - 1)
        total = np.zeros(table.shape[1], np.float64)
        for first in range(0, len(tokens), TOKENS_AT_ONCE):
            total += table[tokens[first : first + TOKENS_AT_ONCE]].sum(axis=0, dtype=np.float64)
        return total / len(tokens)


def padded_batches(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Rows of texts in batches: at most `TEXTS_AT_ONCE`, and `BYTES_AT_ONCE` once they are padded.

    A larger text is alone in its batch.

    Args:
        sizes: Bytes of each text.
    """
    batch: list[int] = []
    for row in sorted(range(len(sizes)), key=sizes.__getitem__):
        too_large = (len(batch) + 1) * sizes[row] > BYTES_AT_ONCE
        if batch and (too_large or len(batch) == TEXTS_AT_ONCE):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class HashEncoder:
    """Words and their runs of 3 to 5 characters, hashed into signed places: no model, no package.

    Two texts are similar if they share words or parts of words. It serves tests, and machines
    without wordllama.

    Args:
        dimension: Length of a vector; more means fewer collisions.

    Source: Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask Learning",
    arXiv:0902.2206; the features are fastText's (Bojanowski et al. 2017, arXiv:1607.04606).
    """

    def __init__(self, dimension: int = 512):
        _check_dimension(dimension)
        self.dimension = dimension
        self.identity = f"hash-1 {dimension}"
        self._word = functools.lru_cache(100_000)(self._features)

    def __reduce__(self):
        return type(self), (self.dimension,)

    def encode(self, texts: list[str]) -> np.ndarray:
        """[n, dimension] float32 of length 1, or 0 for a text without a word."""
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                columns, signs = self._word(word)
                np.add.at(vectors[row], columns, signs)
        return _unit(vectors)

    def _features(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """Places [n] and signs [n] of a word; its runs together weigh as much as the word."""
        padded = f"<{word}>"
        runs = [padded[at : at + n] for n in (3, 4, 5) for at in range(len(padded) - n + 1)]
        digests = [
            int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
            for part in [" " + word, *runs]
        ]
        columns = np.array([digest % (2**62) % self.dimension for digest in digests])
        signs = np.array([1.0 if digest >> 63 else -1.0 for digest in digests], np.float32)
        signs[1:] /= np.sqrt(max(len(runs), 1))
        return columns, signs


def import_wordllama() -> Any:
    """The package wordllama, imported without a trace in the root logger.

    It calls `logging.basicConfig` with the level INFO: from then on every library, TensorFlow's
    absl among them, would print lines that nobody asked for.
    """
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        return importlib.import_module("wordllama")
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def make_encoder(name: str = "auto", dimension: int = WORDLLAMA_DIMENSION) -> Encoder:
    """The encoder "wordllama" or "hash"; "auto" is wordllama where it is installed, else hash."""
    if name not in ("auto", "wordllama", "hash"):
        raise ValueError(f"There is no encoder {name!r}, expected auto, wordllama or hash.")
    if name == "hash":
        return HashEncoder(dimension)
    try:
        return WordLlamaEncoder(dimension)
    except ModuleNotFoundError:
        if name == "auto":
            return HashEncoder(dimension)
        raise


class EmbeddingCache:
    """Vectors of texts, each computed once; the least recently used leave first.

    Threads may share it; while one of them encodes, the others wait.

    Args:
        encoder: Computes what is missing.
        max_entries: Most texts that are kept.

    Attributes:
        encoder: Computes what is missing.
        hits: Requested texts that the cache held, or that came earlier in the same batch.
        misses: Texts that had to be encoded.
    """

    def __init__(self, encoder: Encoder, max_entries: int = 500_000):
        if max_entries < 1:
            raise ValueError(
                f"EmbeddingCache got max_entries {max_entries}, expected at least 1: raise it."
            )
        self.encoder, self.max_entries = encoder, max_entries
        self.hits = self.misses = 0
        self._vectors: collections.OrderedDict[bytes, np.ndarray] = collections.OrderedDict()
        self._lock = threading.RLock()

    @property
    def hit_rate(self) -> float:
        """Share of the requested texts that were not encoded again; 0 before the first request."""
        return self.hits / max(self.hits + self.misses, 1)

    def get_batch(self, texts: Sequence[str]) -> np.ndarray:
        """[n, dimension] float32 vectors of texts; missing ones are encoded in one call."""
        if isinstance(texts, str):
            raise TypeError("get_batch() got one text, expected a list of texts.")
        result = np.empty((len(texts), self.encoder.dimension), np.float32)
        keys = [text_key(text) for text in texts]
        with self._lock:
            missing = {
                key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors
            }
            self.misses += len(missing)
            self.hits += len(texts) - len(missing)
            new = self._encode(missing)
            vectors = {key: new[key] if key in new else self._vectors[key] for key in keys}
            for row, key in enumerate(keys):
                result[row] = vectors[key]
            for key, vector in vectors.items():
                self._vectors[key] = vector
                self._vectors.move_to_end(key)
            while len(self._vectors) > self.max_entries:
                self._vectors.popitem(last=False)
        return result

    def _encode(self, missing: dict[bytes, str]) -> dict[bytes, np.ndarray]:
        """Vectors of texts, encoded in buckets of similar length, so that little is padded."""
        new: dict[bytes, np.ndarray] = {}
        buckets: dict[int, list[bytes]] = {}
        for key, text in missing.items():
            buckets.setdefault(max(len(text).bit_length(), SHORT_BITS), []).append(key)
        for _, keys in sorted(buckets.items()):
            for first in range(0, len(keys), ROWS_AT_ONCE):
                part = keys[first : first + ROWS_AT_ONCE]
                vectors = self._encode_batch([missing[key] for key in part])
                new.update((key, vector.copy()) for key, vector in zip(part, vectors, strict=True))
        return new

    def _encode_batch(self, texts: list[str]) -> np.ndarray:
        vectors = np.asarray(self.encoder.encode(texts), np.float32)
        expected = (len(texts), self.encoder.dimension)
        if vectors.shape != expected or not np.isfinite(vectors).all():
            raise ValueError(
                f"The encoder {self.encoder.identity!r} returned shape {vectors.shape} for "
                f"{len(texts)} texts, finite: {bool(np.isfinite(vectors).all())}; expected "
                f"{expected} and finite numbers. Correct its encode()."
            )
        return vectors


def text_key(text: str) -> bytes:
    """Digest of a text, the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def _check_dimension(dimension: int) -> None:
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}, expected at least 1: it is a vector's length.")


def _with_dimension(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """[n, dimension] from [n, d]: the leading numbers, or a rotation into a larger space."""
    given = vectors.shape[1]
    if dimension <= given:
        return vectors[:, :dimension]
    return vectors @ _rotation(given, dimension)


@functools.lru_cache(4)
def _rotation(given: int, dimension: int) -> np.ndarray:
    """[given, dimension] with rows of length 1 at right angles, the same in every process."""
    normal = np.random.default_rng(0).standard_normal((dimension, given))
    basis, triangle = np.linalg.qr(normal)
    return (basis * np.sign(np.diag(triangle))).T.astype(np.float32)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows with length 1; rows of zeros stay."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norm > 0, norm, 1.0)).astype(np.float32)
