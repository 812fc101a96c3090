"""Texts as token numbers and back: wordllama's byte-pair tokens, or words."""

from __future__ import annotations

import collections
import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from kytolly.config.files import read_json
from kytolly.config.words import path_text, value_text
from kytolly.record.files import write_text
from kytolly.search.index.embedding import import_wordllama
from kytolly.search.index.tokens import plain_words
from kytolly.search.text.rows import PADDING, Ragged

BEGIN, END, UNKNOWN = range(PADDING + 1, 4)  # the same in every vocabulary, as is PADDING
SPECIAL = 4  # how many they are
SPREAD = 0.5  # standard deviation of the numbers in vectors to begin with
BATCH = 4_096  # texts that the tokenizer gets in one call


class Vocabulary(Protocol):
    """Numbers of tokens; 0 is padding, 1 begins a text, 2 ends it, 3 is what is not known.

    Attributes:
        size: Numbers of tokens, the four above included.
        identity: Names the rules and the tokens: networks of equal identity take the same numbers.
    """

    size: int
    identity: str

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """[length] int32 tokens of each text, without a begin or an end."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens up to the first end, without the four above."""
        ...

    def settings(self) -> dict[str, Any]:
        """The settings from which `read_vocabulary` makes it, as JSON can hold them."""
        ...


class BytePairs:
    """The tokens of wordllama's tokenizer, for any language: what it does not know are its bytes.

    Args:
        kept: The tokenizer's numbers of the tokens that get a number here, from 4 on; others are
            unknown. None: all 32,000 keep their own.

    Source: Touvron et al. 2023, arXiv:2307.09288, section 2.2 (Llama 2's tokenizer).
    """

    kind = "byte-pairs"

    def __init__(self, kept: Sequence[int] | None = None):
        self._tokenizer, digest = _byte_pair_tokenizer()
        whole = self._tokenizer.get_vocab_size()
        ids = np.arange(SPECIAL, whole) if kept is None else np.asarray(kept, np.int64)
        if (
            ids.ndim != 1
            or len(np.unique(ids)) != len(ids)
            or np.any((ids < SPECIAL) | (ids >= whole))
        ):
            raise ValueError(
                f"a vocabulary of byte pairs keeps {value_text(kept)}, expected different numbers "
                f"from {SPECIAL} to {whole - 1}. Make it anew from texts."
            )
        self.size, self._kept, self._all = SPECIAL + len(ids), ids, kept is None
        self._numbers = np.full(whole, UNKNOWN, np.int32)
        self._numbers[ids] = np.arange(SPECIAL, self.size)
        kept_digest = hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()[:16]
        self.identity = f"byte-pairs {digest} {kept_digest}"

    @classmethod
    def of(cls, texts: Iterable[str], most: int = 8_000) -> BytePairs:
        """The `most` numbers for the most frequent tokens of the texts: a smaller output layer."""
        counts = np.zeros(_byte_pair_tokenizer()[0].get_vocab_size(), np.int64)
        for tokens in cls().encode(texts):
            np.add.at(counts, tokens, 1)
        counts[:SPECIAL] = 0
        order = np.argsort(-counts, kind="stable")[: max(most - SPECIAL, 0)]
        return cls(order[counts[order] > 0])

    @classmethod
    def seen_first(cls, *texts: Ragged) -> tuple[BytePairs, int, list[Ragged]]:
        """All tokens, those of some texts first, so that a network can learn these alone.

        Args:
            texts: Tokens of a vocabulary that keeps all their own numbers.

        Returns:
            The vocabulary, how many of its first numbers are special or those of the texts, and
            the texts with the new numbers.
        """
        size = _byte_pair_tokenizer()[0].get_vocab_size()
        seen = np.unique(np.concatenate([part.tokens for part in texts]))
        seen = seen[seen >= SPECIAL]
        vocabulary = cls(np.concatenate([seen, np.setdiff1d(np.arange(SPECIAL, size), seen)]))
        return vocabulary, SPECIAL + len(seen), [vocabulary.new_numbers(part) for part in texts]

    def new_numbers(self, texts: Ragged) -> Ragged:
        """Texts with this vocabulary's numbers in place of the tokenizer's own."""
        numbers = self._numbers.copy()
        numbers[:SPECIAL] = np.arange(SPECIAL)
        return texts._replace(tokens=numbers[texts.tokens])

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """[length] int32 tokens of each text."""
        texts, encoded = list(texts), []
        for at in range(0, len(texts), BATCH):
            part = texts[at : at + BATCH]
            encodings = self._tokenizer.encode_batch_fast(part, add_special_tokens=False)
            encoded += [self._numbers[encoding.ids] for encoding in encodings]
        return encoded

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        ids = self._kept[np.asarray(_plain(tokens), np.int64) - SPECIAL]
        return self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)

    def embedding(self) -> np.ndarray:
        """[size, 256] float32 vectors of wordllama to begin with; those of the first four are 0."""
        from safetensors.numpy import load_file

        path = _wordllama_folder() / "weights" / "l2_supercat_256.safetensors"
        (table,) = load_file(path).values()
        special = np.zeros([SPECIAL, table.shape[1]], np.float32)
        return np.concatenate([special, table[self._kept].astype(np.float32)])

    def first_vectors(self) -> np.ndarray:
        """`embedding` with numbers of the size that layers of a network expect."""
        table = self.embedding()
        return table * (SPREAD / table.std())

    def settings(self) -> dict[str, Any]:
        """The settings from which `read_vocabulary` makes it."""
        kept = None if self._all else self._kept.tolist()
        return {"kind": self.kind, "identity": self.identity, "kept": kept}


class Words:
    """Words of letters and digits in lower case.

    Args:
        words: Those that get a number, from 4 on; others are unknown.
    """

    kind = "words"

    def __init__(self, words: Iterable[str]):
        self._words = ["", "", "", "", *words]
        self._numbers = {word: at for at, word in enumerate(self._words) if word}
        if len(self._numbers) != len(self._words) - SPECIAL:
            raise ValueError("a vocabulary has a word twice, or an empty one. Make it anew.")
        self.size = len(self._words)
        digest = hashlib.sha256("\n".join(self._words).encode()).hexdigest()[:16]
        self.identity = f"words-1 {digest}"

    @classmethod
    def of(cls, texts: Iterable[str], most: int = 20_000) -> Words:
        """The `most` numbers for the most frequent words of the texts."""
        counts = collections.Counter(word for text in texts for word in words_in(text))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(ordered[: max(most - SPECIAL, 0)])

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """[length] int32 tokens of each text."""
        numbers = self._numbers
        return [
            np.array([numbers.get(word, UNKNOWN) for word in words_in(text)], np.int32)
            for text in texts
        ]

    def decode(self, tokens: Sequence[int]) -> str:
        """The words, with spaces between them."""
        return " ".join(self._words[token] for token in _plain(tokens))

    def settings(self) -> dict[str, Any]:
        """The settings from which `read_vocabulary` makes it."""
        return {"kind": self.kind, "identity": self.identity, "words": self._words[SPECIAL:]}


def words_in(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return plain_words(text)


class _WordsFile(msgspec.Struct, tag_field="kind", tag=Words.kind):
    identity: str
    words: list[str]


class _BytePairsFile(msgspec.Struct, tag_field="kind", tag=BytePairs.kind):
    identity: str
    kept: list[int] | None


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> Path:
    """Write a vocabulary's settings as JSON; returns the path."""
    return write_text(path, json.dumps(vocabulary.settings(), ensure_ascii=False) + "\n")


def read_vocabulary(path: str | Path) -> Vocabulary:
    """The vocabulary that `write_vocabulary` wrote.

    Raises:
        ValueError: The file holds none, or another tokenizer's.
    """
    name = path_text(path)
    advice = "expected the vocabulary of a run: give the folder that training printed as run_dir"
    saved = read_json(path, _WordsFile | _BytePairsFile, advice)
    identity = saved.identity
    try:
        is_words = isinstance(saved, _WordsFile)
        vocabulary = Words(saved.words) if is_words else BytePairs(saved.kept)
    except ValueError as error:
        raise ValueError(
            f"{name} is no vocabulary ({' '.join(str(error).split()):.200}), expected what "
            "training wrote. Copy it back, or train again."
        ) from None
    if vocabulary.identity != identity:
        raise ValueError(
            f"{name} is the vocabulary of another tokenizer ({value_text(identity)}), expected "
            f"{vocabulary.identity}. Install the version of wordllama that the run was trained "
            "with, or train again."
        )
    return vocabulary


def require_tokens(known: int, vocabulary: Vocabulary, path: Path) -> None:
    """Refuse a network that knows another number of tokens than the vocabulary beside it has."""
    if known != vocabulary.size:
        raise ValueError(
            f"{path} knows {known:,} tokens, and the vocabulary beside it has {vocabulary.size:,}, "
            "expected files of one run. Copy them back, or train again."
        )


def text_tokens(vocabulary: Vocabulary, texts: Iterable[str], max_length: int) -> Ragged:
    """The first tokens of each text; half a character is a question mark."""
    whole = (text.encode("utf-8", "replace").decode() for text in texts)
    return Ragged.of(vocabulary.encode(whole), max_length)


def require_byte_pairs() -> None:
    """Raise ModuleNotFoundError where `BytePairs` lacks its package: before long preparations."""
    _byte_pair_tokenizer()


def _plain(tokens: Sequence[int]) -> list[int]:
    """Tokens up to the first end, without the special ones."""
    numbers = [int(token) for token in tokens]
    end = numbers.index(END) if END in numbers else len(numbers)
    return [token for token in numbers[:end] if token >= SPECIAL]


def _wordllama_folder() -> Path:
    try:
        wordllama = import_wordllama()
    except ImportError:
        raise ModuleNotFoundError(
            "The package wordllama is not installed, and its tokenizer was asked for: "
            "pip install 'kytolly[retrieval]', or take words."
        ) from None
    return Path(wordllama.__file__).parent


@functools.cache
def _byte_pair_tokenizer() -> tuple[Any, str]:
    """Wordllama's tokenizer, and a digest of its rules."""
    path = _wordllama_folder() / "tokenizers" / "l2_supercat_tokenizer_config.json"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a text with "</s>" in it does not end there
    return tokenizer, hashlib.sha256(path.read_bytes()).hexdigest()[:16]
