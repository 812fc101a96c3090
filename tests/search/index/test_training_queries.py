"""Queries to learn from: parts that are held out, and queries made from documents."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kytolly.search.index.collection import Collection
from kytolly.search.index.training_queries import (
    QUERY_WORDS,
    REST_WORDS,
    JudgedTexts,
    held_out_parts,
    sharing,
    synthetic_collection,
)


def judged(*pairs):
    return JudgedTexts([text for text, *_ in pairs], [docs for _, *docs in pairs])


PAIRS = [(f"{word} {doc}", doc) for doc in range(12) for word in ("a", "b", "c")]
PARAPHRASES, ELSEWHERE = judged(*PAIRS), judged(("d", 99))


def test_paraphrases_stay_together_where_dev_queries_are_of_other_documents():
    parts = held_out_parts(PARAPHRASES, ELSEWHERE, 3, 0)
    assert np.bincount(parts).tolist() == [12, 12, 12]
    assert (parts.reshape(12, 3) == parts[::3, np.newaxis]).all()


def test_paraphrases_are_parted_where_dev_queries_have_the_same_documents():
    dev = judged(("d", 3), ("e", 4))
    assert sharing(dev, PARAPHRASES) == sharing(PARAPHRASES, PARAPHRASES) == 1.0
    parts = held_out_parts(PARAPHRASES, dev, 3, 0)
    assert np.bincount(parts).tolist() == [12, 12, 12]
    assert (parts.reshape(12, 3) != parts[::3, np.newaxis]).any()


def test_equal_texts_stay_together_and_a_large_group_is_parted():
    twice = judged(*PAIRS, *PAIRS[:5])
    parts = held_out_parts(twice, judged(("d", 3)), 4, 1)
    assert (parts[:5] == parts[-5:]).all() and set(parts) == {0, 1, 2, 3}
    chain = judged(*((str(place), place, place + 1) for place in range(20)))
    assert sharing(ELSEWHERE, chain) == 0.0 < sharing(chain, chain) == 1.0
    assert np.bincount(held_out_parts(chain, ELSEWHERE, 2, 0)).tolist() == [10, 10]
    one = judged(("0", 0, 1))
    assert sharing(judged(), chain) == 0.0 == sharing(one, one)


def test_fewer_groups_than_parts_are_parted():
    few = judged(*PAIRS[:6])  # of two documents
    assert np.bincount(held_out_parts(few, ELSEWHERE, 2, 0)).tolist() == [3, 3]
    assert np.bincount(held_out_parts(few, ELSEWHERE, 3, 0)).tolist() == [2, 2, 2]


def test_fewer_queries_than_parts_are_refused():
    with pytest.raises(ValueError, match="held_out_folds is 4, and only 3 different train queries"):
        held_out_parts(judged(*PAIRS[:3], PAIRS[0]), judged(), 4, 0)


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
