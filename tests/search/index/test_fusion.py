"""Embeddings of documents and terms, and the search that fuses cosines with BM25."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kytolly.search.index import fusion
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import Collection
from kytolly.search.index.embedding import HashEncoder, make_encoder
from kytolly.search.index.fusion import NONE, DocumentVectors, FusedSearch, TermVectors, score_unit


def test_cosines_by_hand():
    documents = DocumentVectors(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.0, 0.0]]))
    found = documents.cosines(np.array([0.8, -0.6]))
    np.testing.assert_allclose(found, [0.8, 0.0, 0.0, 0.0], atol=1e-3)  # below 0 counts as 0
    np.testing.assert_allclose(documents.cosines(np.array([0.0, 1.0])), [0, 1, 0.8, 0], atol=1e-3)
    np.testing.assert_allclose(documents[np.array([2, 0])], [[0.6, 0.8], [1, 0]], atol=1e-3)


def test_many_documents_have_the_cosines_of_the_plain_product():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3 * fusion.TILE + 5, 24)).astype(np.float32)
    documents, vector = DocumentVectors(vectors), rng.normal(size=24).astype(np.float32)
    plain = np.maximum(vectors.astype(np.float16).astype(np.float64) @ vector, 0.0)
    np.testing.assert_allclose(documents.cosines(vector), plain, atol=1e-5)
    places = rng.permutation(len(vectors))[:9]
    np.testing.assert_array_equal(documents[places], vectors[places].astype(np.float16))


def test_the_unit_is_the_highest_score_or_1():
    assert score_unit(np.array([0.0, 2.5, 1.0])) == 2.5
    assert score_unit(np.zeros(3)) == score_unit(np.zeros(0)) == 1.0
    assert score_unit(np.array([-1.0, -2.0])) == 1.0


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_texts_are_embedded_in_batches(monkeypatch, batch):
    monkeypatch.setattr(fusion, "BATCH", batch)
    texts, encoder = ("river bank", "lake", "", "deep lake", "a"), HashEncoder(32)
    documents = DocumentVectors.of_texts(texts, encoder)
    np.testing.assert_allclose(documents[np.arange(5)], encoder.encode(list(texts)), atol=1e-3)


def test_vectors_are_what_they_will_be_once_saved():
    vectors = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    documents = DocumentVectors(vectors)
    for other in (DocumentVectors(documents.half), pickle.loads(pickle.dumps(documents))):
        np.testing.assert_array_equal(other.cosines(vectors[1]), documents.cosines(vectors[1]))


TERM_TEXTS = ["Running caves", "ran runs cave", "ice cave", "ice running", "alone"]


def term_vectors():
    index = BM25Index(TERM_TEXTS)
    return index, TermVectors.of_index(index, TERM_TEXTS, HashEncoder(64))


def test_terms_of_one_document_are_left_out_and_others_spelled_as_they_are_met_first():
    index, found = term_vectors()
    assert found.spellings == {"cave": "caves", "ice": "ice", "run": "running"}
    assert [index.terms[term] for term in found.ids] == ["cave", "ice", "run"]


def test_only_the_most_frequent_terms_are_embedded(monkeypatch):
    monkeypatch.setattr(fusion, "MAX_TERMS", 1)
    assert list(term_vectors()[1].spellings) == [
        "cave"
    ]  # in three documents; of equal ones the first


def test_the_nearest_terms_come_first_and_excluded_ones_never():
    index, found = term_vectors()
    (vector,) = HashEncoder(64).encode(["ice"])
    names = [index.terms[term] for term in found.nearest(vector, 3, [])]
    assert names[0] == "ice" and len(names) == 3
    ice = index.term_ids["ice"]
    rest = found.nearest(vector, 5, [ice])
    assert [index.terms[term] for term in rest] == names[1:] and rest.dtype == np.int64
    assert found.nearest(vector, 0, []).shape == (0,)


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
    pytest.importorskip("wordllama")
    made, weight = collection(["glacier cave"]), 0.5
    documents, scores = FusedSearch.of_texts(TEXTS, fusion=weight).search(made, [0], 5)
    index, encoder = BM25Index(TEXTS), make_encoder("wordllama")
    plain = index.scores(index.query_weights("glacier cave"))
    cosines = encoder.encode(list(TEXTS)) @ encoder.encode(["glacier cave"])[0]
    expected = plain + weight * plain.max() * np.maximum(cosines, 0.0)
    np.testing.assert_allclose(scores[0], expected[documents[0]], rtol=2e-3, atol=1e-4)
    assert documents[0, 0] == 0 and 1 in documents[0, :4].tolist()  # which BM25 does not find


def test_a_query_that_is_a_document_does_not_find_itself():
    pytest.importorskip("wordllama")
    made = collection(["glacier"], ("d",))
    documents, _ = FusedSearch.of_texts(TEXTS).search(made, [0], 5)
    assert 3 not in documents[0].tolist() and documents[0, 0] == 0


def test_equal_searches_have_one_identity_and_others_another_one():
    pytest.importorskip("wordllama")
    ways = [{}, {"k1": 1.2}, {"b": 0.5}, {"fusion": 2.0}, {"fusion": 0.0}]
    found = [FusedSearch.of_texts(TEXTS, **how).identity for how in ways]
    found.append(FusedSearch.of_texts(TEXTS[:4]).identity)
    assert len(set(found)) == len(found) and FusedSearch.of_texts(TEXTS).identity == found[0]
