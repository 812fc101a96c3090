"""The language that a text is written in, by a small network that comes with the package.

`language_model.npz` was trained by `search/scripts/train_language.py`, which names its texts.
"""

from __future__ import annotations

import collections
import functools
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kytolly.search.index.files import read_arrays
from kytolly.search.index.tokens import (
    AUTO,
    NONE,
    Tokenizer,
    languages,
    make_tokenizer,
    stop_word_lists,
)

MODEL = Path(__file__).with_name("language_model.npz")
NO_LANGUAGE = "none"  # of a text without a letter, as the tokenizers call it
UNSPACED_LANGUAGES = ("chinese", "japanese", "korean", "thai")  # Korean: words carry particles
MAX_CHARACTERS = 1_000  # characters that are looked at
MAX_GRAM = 4  # characters
SAMPLED_TEXTS = 500  # texts whose language is identified where there are many
NOT_LETTERS = re.compile(r"https?://\S+|[\W\d_]+")  # a row of them is one space


class Language(NamedTuple):
    """A language and how sure it is.

    Attributes:
        name: In English and lower case: Snowball's name, where it has a stemmer; "none" for a text
            without a letter.
        probability: Of the language among those of the network.
    """

    name: str
    probability: float


class LanguageModel(NamedTuple):
    """Rows of numbers for runs of characters, and a linear layer on their mean.

    Attributes:
        names: [L] languages.
        table: [buckets, D] int8; a row times its scale is what is learned.
        scale: [D] float32.
        weights: [D, L] float32.
        bias: [L] float32.
    """

    names: np.ndarray
    table: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray


def identify_language(text: str) -> Language:
    """The most probable language of a text; sentences of 20 letters and more are enough.

    Source: Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification",
    arXiv:1607.01759; here the features are hashed runs of 1 to 4 characters.
    """
    model = language_model()
    grams = gram_buckets(text, len(model.table))
    if not len(grams):
        return Language(NO_LANGUAGE, 0.0)
    scores = language_scores(model, grams)
    best = int(scores.argmax())
    return Language(str(model.names[best]), float(1 / np.exp(scores - scores[best]).sum()))


def main_language(texts: Iterable[str]) -> Language:
    """The language that most texts are in, and the share of the texts in it."""
    counts = collections.Counter(identify_language(text).name for text in texts)
    del counts[NO_LANGUAGE]
    if not counts:
        return Language(NO_LANGUAGE, 0.0)
    (name, count), total = counts.most_common(1)[0], sum(counts.values())
    return Language(name, count / total)


def detect_stemmer(texts: Sequence[str]) -> tuple[str, int]:
    """The stemmer for texts by their language, and the length of n-grams in place of words.

    Without a stemmer for it, or where no language has most of the texts, words stay as they are.
    Where no spaces are written, tokens are pairs of characters.
    """
    step = max(1, len(texts) // SAMPLED_TEXTS)
    spoken, share = main_language(texts[::step])
    if share <= 0.5:
        return NO_LANGUAGE, 0
    ngrams = 2 if spoken in UNSPACED_LANGUAGES else 0
    return spoken if spoken in languages() else NO_LANGUAGE, ngrams


def tokenizer_of(language: str, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer for a language, or for the one that most texts are in (`auto`)."""
    ngrams = 0
    if language == AUTO:
        language, ngrams = detect_stemmer(texts)
    return make_tokenizer(language, language if language in stop_word_lists() else NONE, ngrams)


def language_names() -> list[str]:
    """Names of the languages that the network knows."""
    return [str(name) for name in language_model().names]


def language_scores(model: LanguageModel, grams: np.ndarray) -> np.ndarray:
    """[L] log-probabilities but for a constant, from [n] buckets with n above 0."""
    mean = model.table[grams].mean(axis=0, dtype=np.float32) * model.scale
    return mean @ model.weights + model.bias


def gram_buckets(text: str, buckets: int) -> np.ndarray:
    """[n] bucket of each run of 1 to 4 letters and spaces of a text; empty without a letter."""
    plain = NOT_LETTERS.sub(" ", text[:MAX_CHARACTERS].lower()).strip()
    if not plain:
        return np.zeros(0, np.int64)
    padded = f" {plain} "
    grams = [
        padded[at : at + n].encode("utf-8", "replace")
        for n in range(1, MAX_GRAM + 1)
        for at in range(len(padded) - n + 1)
    ]
    return np.fromiter(map(zlib.crc32, grams), np.int64, len(grams)) % buckets


@functools.cache
def language_model() -> LanguageModel:
    """The network that comes with the package."""
    return LanguageModel(*read_arrays(MODEL, LanguageModel._fields))
