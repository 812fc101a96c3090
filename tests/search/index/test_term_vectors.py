import numpy as np

from kytolly.search.index import term_vectors
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.embedding import HashEncoder
from kytolly.search.index.term_vectors import TermVectors

TEXTS = ["Running caves", "ran runs cave", "ice cave", "ice running", "alone"]


def made():
    index = BM25Index(TEXTS)
    return index, TermVectors.of_index(index, TEXTS, HashEncoder(64))


def test_terms_of_one_document_are_left_out_and_others_spelled_as_they_are_met_first():
    index, found = made()
    assert found.spellings == {"cave": "caves", "ice": "ice", "run": "running"}
    assert [index.terms[term] for term in found.ids] == ["cave", "ice", "run"]


def test_only_the_most_frequent_terms_are_embedded(monkeypatch):
    monkeypatch.setattr(term_vectors, "MAX_TERMS", 1)
    assert list(made()[1].spellings) == ["cave"]  # in three documents; of equal ones the first


def test_the_nearest_terms_come_first_and_excluded_ones_never():
    index, found = made()
    (vector,) = HashEncoder(64).encode(["ice"])
    names = [index.terms[term] for term in found.nearest(vector, 3, [])]
    assert names[0] == "ice" and len(names) == 3
    ice = index.term_ids["ice"]
    rest = found.nearest(vector, 5, [ice])
    assert [index.terms[term] for term in rest] == names[1:] and rest.dtype == np.int64
    assert found.nearest(vector, 0, []).shape == (0,)
