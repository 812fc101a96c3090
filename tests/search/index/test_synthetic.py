"""Queries made from documents: the answer is not given away."""

import dataclasses

import numpy as np
import pytest

from kytolly.search.index.collection import Collection
from kytolly.search.index.synthetic import QUERY_WORDS, REST_WORDS, synthetic_collection


def documents(count=40):
    texts = [
        " ".join(" ".join(f"d{doc}s{part}w{word}" for word in range(8)) + "." for part in range(4))
        for doc in range(count)
    ]
    ids = [f"doc{number}" for number in range(count)]
    return Collection("made", ids, texts, ["q"], ["a query"], {"dev": {"q": {"doc0": 1}}})


def test_a_query_is_a_part_that_its_document_lacks():
    whole = documents()
    made = synthetic_collection(whole, 25, seed=3)
    assert len(made.queries) == 25 and made.doc_ids == whole.doc_ids
    changed = {place for place in range(40) if made.texts[place] != whole.texts[place]}
    assert len(changed) == 25
    openings = 0
    for number in made.split("train"):
        (doc,) = made.relevant(number, "train")
        words = made.queries[number].split()
        assert QUERY_WORDS[0] <= len(words) <= QUERY_WORDS[1] and doc in changed
        assert made.queries[number] in whole.texts[doc]
        assert not set(words) & set(made.texts[doc].split())
        assert len(made.texts[doc].split()) >= REST_WORDS
        openings += whole.texts[doc].startswith(made.queries[number])
    assert 0 < openings < 25


def test_the_seed_decides():
    whole = documents()
    first, again = (synthetic_collection(whole, 9, seed=1).queries for _ in range(2))
    assert first == again != synthetic_collection(whole, 9, seed=2).queries


@pytest.mark.parametrize("text", ["", "two words", "only nine words are in here so none fits"])
def test_short_documents_give_none(text):
    short = dataclasses.replace(documents(3), texts=[text] * 3)
    made = synthetic_collection(short, 3)
    assert not made.queries and list(made.texts) == [text] * 3
    assert np.array_equal(made.split("train"), [])
