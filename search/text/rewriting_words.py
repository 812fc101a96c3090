"""The words that a rewriter reads and writes, and the terms of an index in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kytolly.search.index.tokens import Tokenizer
from kytolly.search.text.rows import Ragged
from kytolly.search.text.vocabulary import BEGIN, END, SPECIAL, BytePairs, Words

DIMENSION = 256  # of word vectors, as wordllama's
SPREAD = 0.1  # standard deviation of the numbers in them


class Term(NamedTuple):
    """A term that a rewriter proposes.

    Attributes:
        term: As the tokenizer of the index makes it.
        log_probability: Natural logarithm; given the query and what was written before.
    """

    term: str
    log_probability: float


def make_vocabulary(texts: Iterable[str], tokenizer: Tokenizer | None, most: int) -> Words:
    """The most frequent words of some texts or, with a tokenizer, its terms."""
    return Words.of(as_terms(texts, tokenizer), most)


def source_tokens(
    vocabulary: Words, texts: Iterable[str], tokenizer: Tokenizer | None, longest: int
) -> Ragged:
    """The first tokens of queries, as words or, with a tokenizer, as its terms."""
    return Ragged.of(vocabulary.encode(as_terms(texts, tokenizer)), longest)


def as_terms(texts: Iterable[str], tokenizer: Tokenizer | None) -> Iterable[str]:
    """Texts of the terms of texts; without a tokenizer, the texts."""
    return (text if tokenizer is None else " ".join(tokenizer(text)) for text in texts)


def word_vectors(vocabulary: Words) -> np.ndarray:
    """[V, 256] a word's vector is the mean of wordllama's for the parts of the word."""
    pairs, words = BytePairs(), vocabulary.settings()["words"]
    table = pairs.embedding()
    vectors = np.zeros((vocabulary.size, DIMENSION), np.float32)
    for number, tokens in enumerate(pairs.encode(words), SPECIAL):
        vectors[number] = table[tokens].mean(axis=0)
    vectors *= SPREAD / vectors[SPECIAL:].std()
    special = SPECIAL - BEGIN  # all but padding are drawn: wordllama has none for them
    vectors[BEGIN:SPECIAL] = np.random.default_rng(0).normal(0.0, SPREAD, (special, DIMENSION))
    return vectors


def index_terms(
    vocabulary: Words, tokenizer: Tokenizer, query: str, written: np.ndarray, are_terms: bool
) -> list[Term]:
    """The different terms of an index in what was written, but for the query's own.

    Args:
        vocabulary: Of the tokens.
        tokenizer: Of the index.
        query: Its text.
        written: [T, 2] tokens and their log-probabilities; an end ends it.
        are_terms: Whether the tokens are terms already, else words of a text.
    """
    typed, scores = set(tokenizer(query)), {}
    for token, score in written:
        if token == END:
            break
        word = vocabulary.decode([int(token)])
        for term in [word] if are_terms else tokenizer(word):
            if term not in typed:
                scores.setdefault(term, float(score))
    return [Term(*item) for item in scores.items()]
