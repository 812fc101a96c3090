import pickle

import numpy as np
import pytest

from kytolly.search.index import fusion
from kytolly.search.index.embedding import HashEncoder
from kytolly.search.index.fusion import DocumentVectors, score_unit


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
