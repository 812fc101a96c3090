"""The index against rank_bm25, and its parts against arithmetic; the best of many scores."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.ranking import GROUPED, best_nonzero, best_places, nth_best
from tests.search.index.words import Words

TEXTS = ["a b a", "b c", "", "a a a d", "c b d e", "f", "b"]
SHARED = Path(os.environ.get("KYTOLLY_IR_DATA", "/nowhere"))
FOLDERS = sorted(path for path in SHARED.glob("*") if (path / "corpus.jsonl").is_file())


@pytest.fixture(scope="module")
def index():
    return BM25Index(TEXTS, Words())


def compare(index, reference, text):
    ours = index.scores(index.query_weights(text))
    assert ours.dtype == np.float32 and ours.shape == (index.documents,)
    theirs = reference.get_scores(index.tokenizer(text))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"k1": 0.9, "b": 0.4, "epsilon": 0.5}, {"b": 0.0}])
@pytest.mark.parametrize("query", ["a", "a b", "b b c", "unknown", "f unknown d d d", ""])
def test_scores_are_rank_bm25s(settings, query):
    reference = BM25Okapi([text.split() for text in TEXTS], **settings)
    compare(BM25Index(TEXTS, Words(), **settings), reference, query)


def test_terms_in_most_documents_get_the_floor():
    # b: in 4 of 7 documents, log(3.5) - log(4.5) < 0, so a quarter of the mean of all six idfs.
    index = BM25Index(TEXTS, Words())
    plain = [np.log(7 - n + 0.5) - np.log(n + 0.5) for n in (2, 4, 2, 2, 1, 1)]
    np.testing.assert_allclose(index.idf[1], 0.25 * np.mean(plain), rtol=1e-6)
    np.testing.assert_allclose(index.idf[0], plain[0], rtol=1e-6)


@pytest.mark.parametrize("texts", [["a"], ["a", "a"], ["a b", "a b", "a"], ["", ""], ["a", ""]])
def test_tiny_collections_with_negative_average_idf(texts):
    index = BM25Index(texts, Words())
    if any(texts):
        compare(index, BM25Okapi([text.split() for text in texts]), "a b a")
    else:
        assert index.terms == [] and not index.scores({"a": 1.0}).any()  # rank_bm25 divides by 0


@pytest.mark.learning
def test_the_built_in_collection_has_rank_bm25s_scores():
    check_collection("builtin", ())


@pytest.mark.skipif(not FOLDERS, reason="KYTOLLY_IR_DATA names no folder of collections")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_shared_collections_have_rank_bm25s_scores(folder):
    check_collection(folder, ("train",))


def check_collection(source, splits):
    collection = load_collection(source, splits=splits)
    index = BM25Index(collection.texts)
    reference = BM25Okapi([index.tokenizer(text) for text in collection.texts])
    for text in random.Random(0).sample(list(collection.queries), 12):
        compare(index, reference, text)


def test_a_query_is_the_weighted_sum_of_columns(index):
    weights = {"a": 2.0, "c": 0.3, "unknown": 5.0}
    whole = 2.0 * index.column("a") + np.float32(0.3) * index.column("c")
    np.testing.assert_allclose(index.scores(weights), whole, rtol=1e-6)
    docs, impacts = index.postings("a")
    assert docs.tolist() == [0, 3] and docs.dtype == np.int32
    np.testing.assert_array_equal(index.column("a")[docs], impacts)
    assert not index.column("unknown").any() and len(index.postings("unknown")[0]) == 0
    assert index.query_weights("b unknown b a") == {"b": 2.0, "unknown": 1.0, "a": 1.0}


def test_postings_of_several_terms_are_those_of_each_one_after_another(index):
    docs, impacts, starts = index.postings_of(np.array([2, 0, 5]))
    parts = [index.postings(term) for term in "caf"]
    np.testing.assert_array_equal(docs, np.concatenate([part for part, _ in parts]))
    np.testing.assert_array_equal(impacts, np.concatenate([part for _, part in parts]))
    assert starts.tolist() == [0, 2, 4]


def test_documents_know_their_terms(index):
    assert index.terms == list("abcdef") and index.documents == 7
    ids, counts = index.document_terms(3)
    assert [index.terms[i] for i in ids] == ["a", "d"] and counts.tolist() == [3, 1]
    assert len(index.document_terms(2)[0]) == 0
    assert index.lengths.tolist() == [3, 2, 0, 4, 4, 1, 1]
    assert index.mean_length == 15 / 7 and index.longest == 4
    assert index.document_frequency.tolist() == [2, 4, 2, 2, 1, 1]


@pytest.mark.parametrize("top", [1, 2, 3, 5, 7, 50])
def test_search_is_a_stable_sort_of_the_scores(top):
    index = BM25Index(["x y", "y x", "z", "x y", "y", "x x", "y x"], Words())
    for weights in ({"x": 1.0}, {"y": 1.0, "x": 0.5}, {"z": -1.0, "y": 1.0}, {}):
        scores = index.scores(weights)
        order = [d for d in np.argsort(-scores, kind="stable") if scores[d] != 0]
        docs, found = index.search(weights, top)
        assert docs.tolist() == order[:top] and docs.dtype == np.int32
        np.testing.assert_array_equal(found, scores[order[:top]])


@pytest.mark.parametrize("workers", [1, 3])
def test_a_batch_is_the_searches_one_by_one(index, workers):
    queries = [index.query_weights(text) for text in ["a", "unknown", "b c", "d e f"]]
    docs, scores = index.search_batch(queries, 3, workers=workers)
    assert docs.dtype == np.int32 and scores.dtype == np.float32
    for row, weights in enumerate(queries):
        one_docs, one_scores = index.search(weights, 3)
        filled = len(one_docs)
        assert docs[row].tolist() == one_docs.tolist() + [-1] * (3 - filled)
        assert scores[row].tolist() == one_scores.tolist() + [0.0] * (3 - filled)
    assert index.search_batch([], 3)[0].shape == (0, 3)


def test_a_saved_index_is_the_same_and_bound_to_what_made_it(tmp_path, index):
    path = tmp_path / "index.bm25"
    index.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["index.bm25"]
    copy = BM25Index.load(path, TEXTS, Words(), parameters=(1.5, 0.75, 0.25))
    np.testing.assert_array_equal(
        copy.scores({"a": 1.0, "d": 0.3}), index.scores({"a": 1, "d": 0.3})
    )
    assert copy.terms == index.terms and copy.lengths.tolist() == index.lengths.tolist()
    other = Words()
    other.identity = "other words"
    for settings, said in [
        ({"texts": TEXTS[::-1], "tokenizer": Words()}, "digest"),
        ({"texts": TEXTS, "tokenizer": other}, "tokenizer 'words'; expected 'other words'"),
        ({"tokenizer": Words(), "parameters": (1.2, 0.75, 0.25)}, "parameters"),
    ]:
        with pytest.raises(ValueError, match=said):
            BM25Index.load(path, **settings)


def test_an_index_of_before_is_made_again_where_it_tore_words(tmp_path, monkeypatch):
    torn, whole = ["cafe\u0301 noir"], ["caf\u00e9 noir"]  # the accent typed by itself, or not
    path, real = tmp_path / "index.npz", json.dumps
    BM25Index(torn).save(path)
    assert BM25Index.load(path, torn).terms == ["caf\u00e9", "noir"]

    def of_before(bound):
        return real({name: value for name, value in bound.items() if name != "composed"})

    monkeypatch.setattr(json, "dumps", of_before)
    BM25Index(torn).save(path)
    with pytest.raises(ValueError, match="earlier version, which tore words"):
        BM25Index.load(path, torn)
    BM25Index(whole).save(path)
    assert BM25Index.load(path, whole).terms == ["caf\u00e9", "noir"]


@pytest.mark.parametrize("content", [None, b"", b"no index", b"PK\x03\x04 cut off"])
def test_files_that_are_no_index_are_refused(tmp_path, content):
    path = tmp_path / "index.bm25"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="index again"):
        BM25Index.load(path, tokenizer=Words())


def test_no_documents_are_refused():
    with pytest.raises(ValueError, match="0 documents"):
        BM25Index([], Words())


def altered(tmp_path, index, **changes):
    """The refusal of a saved index with other arrays or another header; it must be one line."""
    path = tmp_path / "index.bm25"
    index.save(path)
    with np.load(path) as data:
        parts = dict(data)
    header = json.loads(parts["header"].tobytes())
    for name, value in changes.items():
        if name in parts:
            parts[name] = value(parts[name])
        else:
            header["terms" if name == "words" else name] = value
    parts["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **parts)
    with pytest.raises(ValueError) as caught:
        BM25Index.load(path, TEXTS, Words())
    assert "\n" not in str(caught.value) and "index again" in str(caught.value)
    return str(caught.value)


def put(place, value, kind=None):
    """A function that changes one number of an array, or its kind."""

    def change(part):
        part = part.astype(kind or part.dtype)
        part[place] = value
        return part

    return change


@pytest.mark.parametrize(
    "changes",
    [
        {"terms": put(0, 10**6)},  # the first four and those of the starts end the process in C
        {"terms": put(0, 6)},
        {"terms": put(0, -1)},
        {"terms": put(0, 2**62, np.int64)},
        {"starts": put(2, 10**9)},
        {"starts": put(1, -(10**9))},
        {"starts": put(0, 1)},
        {"starts": put(-1, 10**9)},
        {"starts": lambda part: part[:0]},
        {"starts": lambda part: part[:1]},
        {"starts": lambda part: part[:-1]},
        {"starts": lambda part: np.append(part, part[-1])},
        {"counts": put(0, -3)},
        {"counts": put(0, 0)},
        {"counts": put(0, 2**40, np.int64)},
        {"counts": put(slice(None), 2**31 - 1)},
        {"counts": put(0, 1.5, np.float32)},
        {"counts": put(0, np.nan, np.float64)},
        {"counts": lambda part: part[:-1]},
        {"counts": lambda part: part.reshape(1, -1)},
        {"terms": lambda part: part[::-1].copy()},
        {"terms": lambda part: part.astype(">i4")},
        {"terms": lambda part: part.astype(str)},
        {"terms": lambda part: part.astype(object)},
        {"words": list("abcdee")},
        {"words": list("fedcba")},
        {"words": [1, 2, 3, 4, 5, 6]},
        {"words": "abcdef"},
        {"words": list("abcde")},
        {"parameters": [1.5, 0.75]},
        {"parameters": [math.nan, 0.75, 0.25]},
        {"parameters": [10**400, 0.75, 0.25]},
        {"digest": "0" * 64},
        {"format": "1"},
    ],
)
def test_an_altered_index_is_refused(tmp_path, index, changes):
    altered(tmp_path, index, **changes)


def test_an_index_with_code_in_it_runs_nothing(tmp_path, index):
    class Code:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    altered(tmp_path, index, terms=lambda part: np.array([Code()] * len(part), object))
    (tmp_path / "index.bm25").write_bytes(pickle.dumps(Code()))
    with pytest.raises(ValueError, match="index again"):
        BM25Index.load(tmp_path / "index.bm25", TEXTS, Words())
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("settings", [{"k1": math.nan}, {"k1": -1.0}, {"k1": 1e300}, {"b": 2.0}])
def test_parameters_that_make_no_scores_are_refused(settings):
    with pytest.raises(ValueError, match="BM25 got k1"):
        BM25Index(TEXTS, Words(), **settings)


def test_the_nth_best_score():
    assert nth_best(np.array([3.0, 9.0, 5.0]), 2) == 5.0
    assert nth_best(np.array([3.0, 9.0]), 5) == 3.0


@pytest.mark.parametrize("top", [0, 1, 2, 3, 4, 9])
def test_the_best_places_are_those_of_a_stable_sort(top):
    scores = np.array([2.0, 5.0, 2.0, 7.0, 5.0, 2.0])
    assert best_places(scores, top).tolist() == [3, 1, 4, 0, 2, 5][:top]
    some = np.array([0, 2, 4, 5])
    assert best_places(scores, top, some).tolist() == [4, 0, 2, 5][:top]


@pytest.mark.parametrize("top", [0, 1, 10, 40, 5_000])
@pytest.mark.parametrize("kind", ["dense", "sparse", "ties", "negative", "zeros"])
def test_the_best_of_many_scores_are_those_of_a_stable_sort(kind, top):
    """More scores than fit into groups, with some left over."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=33 * GROUPED + 7).astype(np.float32)
    if kind == "sparse":  # fewer than `top` are found, sometimes
        scores = np.where(rng.random(len(scores)) < 0.01, np.abs(scores), 0.0)
    elif kind == "ties":
        scores = np.maximum(np.round(scores), 0.0)
    elif kind == "negative":
        scores = np.where(rng.random(len(scores)) < 0.01, -np.abs(scores), 0.0)
    elif kind == "zeros":
        scores = np.zeros_like(scores)
    order = np.argsort(-scores, kind="stable")
    np.testing.assert_array_equal(best_places(scores, top), order[:top])
    np.testing.assert_array_equal(best_nonzero(scores, top), order[scores[order] != 0][:top])
