"""The search whose best documents are ranked anew."""

import numpy as np
import pytest

pytest.importorskip("wordllama")

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.embedding import make_encoder
from kytolly.search.index.first_search import NONE, FusedSearch

TEXTS = ("glacier cave", "frozen cavern under the ice", "red apple pie", "glacier", "cave art")


def collection(queries, ids=None):
    ids = ids or tuple(f"q{n}" for n in range(len(queries)))
    return Collection("made", tuple("abcde"), TEXTS, ids, tuple(queries), {})


def test_without_cosines_it_is_bm25():
    made = collection(["glacier cave", "pie", "nothing"])
    documents, scores = FusedSearch.of_texts(TEXTS, fusion=0.0).search(made, [0, 1, 2], 4)
    index = BM25Index(TEXTS)
    weights = [index.query_weights(text) for text in made.queries]
    expected = index.search_batch(weights, 4)
    np.testing.assert_array_equal(documents, expected[0])
    np.testing.assert_allclose(scores, expected[1])
    assert documents[0].tolist()[3] == NONE == documents[2].tolist()[0]


def test_a_cosine_of_1_is_worth_the_highest_score():
    made, fusion = collection(["glacier cave"]), 0.5
    documents, scores = FusedSearch.of_texts(TEXTS, fusion=fusion).search(made, [0], 5)
    index, encoder = BM25Index(TEXTS), make_encoder("wordllama")
    plain = index.scores(index.query_weights("glacier cave"))
    cosines = encoder.encode(list(TEXTS)) @ encoder.encode(["glacier cave"])[0]
    expected = plain + fusion * plain.max() * np.maximum(cosines, 0.0)
    np.testing.assert_allclose(scores[0], expected[documents[0]], rtol=2e-3, atol=1e-4)
    assert documents[0, 0] == 0 and 1 in documents[0, :4].tolist()  # which BM25 does not find


def test_a_query_that_is_a_document_does_not_find_itself():
    made = collection(["glacier"], ("d",))
    documents, _ = FusedSearch.of_texts(TEXTS).search(made, [0], 5)
    assert 3 not in documents[0].tolist() and documents[0, 0] == 0


def test_equal_searches_have_one_identity_and_others_another_one():
    ways = [{}, {"k1": 1.2}, {"b": 0.5}, {"fusion": 2.0}, {"fusion": 0.0}]
    found = [FusedSearch.of_texts(TEXTS, **how).identity for how in ways]
    found.append(FusedSearch.of_texts(TEXTS[:4]).identity)
    assert len(set(found)) == len(found) and FusedSearch.of_texts(TEXTS).identity == found[0]
