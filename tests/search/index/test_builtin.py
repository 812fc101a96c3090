"""The built-in collection: the same every time, its splits apart, neither trivial nor hopeless."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kytolly.search.index import builtin
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.collection import text_digest
from kytolly.search.index.corpus import available_splits, load_collection
from kytolly.search.index.metrics import per_query


@pytest.fixture(scope="module")
def collection():
    return load_collection("builtin")


def test_a_docstring_is_cut_after_its_first_sentence():
    cut = builtin._first_sentence
    assert cut("Do it, e.g. Now. Then\nrest.\n\nMore.") == (
        "Do it, e.g. Now.",
        "Then\nrest.\n\nMore.",
    )
    assert cut("One line\nwithout end\n\nMore.") == ("One line without end", "More.")
    assert cut("All there is.") == ("All there is.", "")


def test_public_names_only_and_methods_with_their_class():
    source = """
def f():
    "F."
def _g():
    "G."
class C:
    "C."
    def m(self):
        "M."
        def inner():
            "I."
    def __init__(self):
        "N."
"""
    assert list(builtin._docstrings(builtin.ast.parse(source).body)) == [
        ("f", "F."),
        ("C", "C."),
        ("C.m", "M."),
    ]


def test_sentences_that_resemble_one_of_another_split_are_found():
    words = [frozenset(text.split()) for text in ("a b c d", "a b c e f", "a b c d e", "x a b c d")]
    # 0 and 2 share 4 of 5 words, across splits; 0 and 3, too, but in one split; 0 and 1 3 of 6.
    assert builtin._crossing(words, ["train", "test", "test", "train"]) == {0, 2}


@pytest.mark.learning
def test_thousands_of_documents_with_one_relevant_each(collection):
    assert 3_000 < len(collection.doc_ids) < 20_000
    assert len(set(collection.doc_ids)) == len(collection.doc_ids)
    assert available_splits("builtin") == ["train", "dev", "test"]
    for split in available_splits("builtin"):
        queries = collection.split(split)
        assert len(queries) > 300
        assert all(len(collection.relevant(query, split)) == 1 for query in queries)
    query = collection.query_ids.index("scipy.linalg._matfuncs.sqrtm?")
    assert "square root" in collection.queries[query]


def test_splits_share_no_query_and_no_module(collection):
    modules = {
        split: {query.rsplit(".", 1)[0] for query in judged}
        for split, judged in collection.judgments.items()
    }
    assert not modules["train"] & modules["test"] and not modules["train"] & modules["dev"]
    only = load_collection("builtin", splits=("dev",))
    assert only.judgments == {"dev": collection.judgments["dev"]}
    assert only.queries == collection.queries


@pytest.mark.learning
def test_another_process_builds_the_same_without_importing_what_it_reads(collection):
    code = """
import sys
from kytolly.search.index.collection import text_digest
from kytolly.search.index.corpus import load_collection
c = load_collection("builtin")
print(text_digest(c.texts), len(c.queries), "keras" in sys.modules, "matplotlib" in sys.modules)
"""
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    digest, queries, *imported = run.stdout.split()
    assert (digest, int(queries)) == (text_digest(collection.texts), len(collection.queries))
    assert imported == ["False", "False"]


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="No split 'valid' in the built-in"):
        load_collection("builtin", splits=("valid",))


def test_bm25_finds_about_half(collection):
    index = BM25Index(collection.texts)
    queries = collection.split("dev")
    weights = [index.query_weights(collection.queries[query]) for query in queries]
    docs, scores = index.search_batch(weights, 40)
    run = {
        collection.query_ids[query]: [
            (collection.doc_ids[doc], score) for doc, score in zip(found, values, strict=True)
        ]
        for query, found, values in zip(queries, docs, scores, strict=True)
    }
    values = per_query(collection.judgments["dev"], run, ["ndcg@10", "recall@40"])
    ndcg, recall = (np.mean(list(of_queries.values())) for of_queries in values.values())
    assert 0.4 < ndcg < 0.7 < recall < 0.95
