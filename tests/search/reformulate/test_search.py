"""Searches with BM25 and cosines, and what a run keeps of its documents."""

import dataclasses
import threading
import zipfile

import numpy as np
import pytest

from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.fusion import DocumentVectors
from kytolly.search.reformulate.search import VECTORS_FILE, SearchContext
from tests.search.reformulate.tiny_collection import make_options, write_collection


@pytest.fixture(scope="module")
def context(collection):
    return SearchContext.load(make_options(collection), ())


def searched(context, queries, ids=None):
    ids = ids or tuple(f"q{n}" for n in range(len(queries)))
    return dataclasses.replace(
        context.collection, query_ids=ids, queries=tuple(queries), judgments={}
    )


def expected(context, text, weights, fusion, excluded=None):
    """(document id, score), best first, from scores of all documents one by one."""
    documents = range(len(context.collection.texts))

    def bm25(terms):
        found = np.zeros(len(documents))
        for term, weight in terms.items():
            found += weight * context.index.column(term)
        if excluded is not None:
            found[excluded] = 0.0
        return found

    unit = bm25(context.index.query_weights(text)).max() or 1.0
    vector = context.cache.get_batch([text])[0]
    scores = bm25(weights)
    for doc in documents:
        (embedding,) = context.cache.get_batch([context.collection.texts[doc]])
        scores[doc] += fusion * unit * max(float(embedding @ vector), 0.0)
    if excluded is not None:
        scores[excluded] = 0.0
    order = np.argsort(-scores, kind="stable")
    return [(context.collection.doc_ids[doc], scores[doc]) for doc in order if scores[doc] > 0]


@pytest.mark.parametrize("fusion", [0.0, 0.5, 2.0])
def test_a_score_is_bm25_plus_a_share_of_the_best_times_the_cosine(context, fusion):
    text = "key12 noise1"
    weights = {"key12": 1.0, "noise1": 1.0, "syn12": 0.7, "nowhere": 1.0}
    (found,) = context.rank(searched(context, [text]), [0], [weights], fusion, 20)
    wanted = expected(context, text, weights, fusion)[:20]
    np.testing.assert_allclose(
        [hit.score for hit in found], [score for _, score in wanted], rtol=2e-3
    )
    best = dict(expected(context, text, weights, fusion))
    assert all(best[hit.doc_id] == pytest.approx(hit.score, rel=2e-3) for hit in found)


def test_several_weightings_have_the_rankings_that_each_has_alone(context):
    texts = ["key12 noise1", context.collection.texts[0]]
    collection = searched(context, texts, ("other", context.collection.doc_ids[0]))
    typed = [context.index.query_weights(text) for text in texts]
    more = [{**weights, "syn12": 0.7} for weights in typed]
    less = [{**dict.fromkeys(weights, 0.5), "syn12": 0.7} for weights in typed]
    for fusion in (0.0, 1.0):
        found = context.rank_all(collection, [0, 1], [typed, more, less], fusion, 20)
        for weights, rankings in zip((typed, more, less), found, strict=True):
            assert rankings == context.rank(collection, [0, 1], weights, fusion, 20)
            for place, ranking in enumerate(rankings):  # as for this query alone
                alone = context.rank_all(collection, [place], [[weights[place]]], fusion, 20)
                assert alone == [[ranking]]
        assert found[0] != found[1] != found[2]
        if fusion == 0.0:
            scores = context.index.scores(more[0])
            assert [hit.score for hit in found[1][0]] == np.sort(scores)[::-1][:20].tolist()


def test_a_query_that_is_a_document_neither_finds_it_nor_takes_its_unit(context):
    text, name = context.collection.texts[0], context.collection.doc_ids[0]
    weights = context.index.query_weights(text)
    own, other = (searched(context, [text], (key,)) for key in (name, "other"))
    for fusion in (0.0, 1.0):
        (found,) = context.rank(own, [0], [weights], fusion, 200)
        (whole,) = context.rank(other, [0], [weights], fusion, 200)
        assert name not in {hit.doc_id for hit in found} and whole[0].doc_id == name
        wanted = dict(expected(context, text, weights, fusion, excluded=0))
        assert len(found) == len(wanted)
        for hit in found:
            assert hit.score == pytest.approx(wanted[hit.doc_id], rel=5e-3, abs=1e-3)


def test_a_query_without_a_known_token_is_searched_by_cosines_alone(context):
    collection = searched(context, ["noises noisy", "zzz", ""])
    nothing = [context.index.query_weights(text) for text in collection.queries]
    plain = context.rank(collection, range(3), nothing, 0.0, 10)
    assert plain == [(), (), ()]
    first, _, empty = context.rank(collection, range(3), nothing, 1.0, 10)
    assert len(first) == 10 and empty == ()  # no word, no vector
    cosines = [score for _, score in expected(context, "noises noisy", {}, 1.0)][:10]
    np.testing.assert_allclose([hit.score for hit in first], cosines, rtol=5e-3)
    assert max(cosines) <= 1.0


def test_cosines_count_as_the_options_say_and_for_hashed_words_not_at_all(collection):
    assert SearchContext.load(make_options(collection), ()).usual_fusion == 0.0
    for fusion in (0.0, 0.5):
        context = SearchContext.load(make_options(collection, {"fusion": fusion}), ())
        assert context.usual_fusion == fusion and context.mining.fusion == 0.0
    assert context.rules.max_candidates == 8 + 12 and context.rules.pool_documents == 64


@pytest.fixture
def folder(context, tmp_path):
    context.save(tmp_path)
    return tmp_path


def load(collection, folder, monkeypatch, **retrieval):
    """A search context, and how often its documents were embedded."""
    calls, real = [], DocumentVectors.of_texts.__func__

    def embed(cls, texts, encoder):
        calls.append(len(texts))
        return real(cls, texts, encoder)

    monkeypatch.setattr(DocumentVectors, "of_texts", classmethod(embed))
    options = make_options(collection, retrieval)
    return SearchContext.load(options, (), saved=folder), len(calls)


def test_saved_embeddings_are_used(collection, context, folder, monkeypatch):
    found, embedded = load(collection, folder, monkeypatch)
    assert embedded == 0 and not list(folder.glob("*.partial"))
    np.testing.assert_array_equal(found.documents.half, context.documents.half)


def test_embeddings_of_other_texts_or_encoders_are_made_again(folder, monkeypatch, tmp_path):
    other = write_collection(tmp_path / "other", seed=1)
    found, embedded = load(other, folder, monkeypatch)
    fresh = found.cache.encoder.encode([found.collection.texts[0]])
    assert embedded == 1
    np.testing.assert_allclose(found.documents[np.array([0])], fresh, atol=1e-3)


def test_embeddings_of_another_length_are_made_again(collection, folder, monkeypatch):
    found, embedded = load(collection, folder, monkeypatch, dimension=8)
    assert embedded == 1 and found.documents.half.shape[1] == 8


def few(parts):
    parts["vectors"] = parts["vectors"][:-1]


def single(parts):
    parts["vectors"] = parts["vectors"].astype(np.float32)


def nan(parts):
    parts["vectors"][3, 2] = np.nan


def objects(parts):
    parts["identity"] = np.array([object()], object)


@pytest.mark.parametrize("change", [few, single, nan, objects, lambda parts: parts.pop("identity")])
def test_damaged_embeddings_are_made_again(collection, context, folder, monkeypatch, change):
    with np.load(folder / VECTORS_FILE) as data:
        parts = {name: part.copy() for name, part in data.items()}
    change(parts)
    np.savez(folder / VECTORS_FILE, **parts)
    found, embedded = load(collection, folder, monkeypatch)
    assert embedded == 1
    np.testing.assert_array_equal(found.documents.half, context.documents.half)


@pytest.mark.parametrize("data", [b"", b"damaged", b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_none_is_made_again(collection, folder, monkeypatch, data):
    (folder / VECTORS_FILE).write_bytes(data)
    assert load(collection, folder, monkeypatch)[1] == 1


def test_embeddings_that_unpack_to_more_are_made_again(collection, context, folder, monkeypatch):
    whole = context.documents.half
    np.savez_compressed(folder / VECTORS_FILE, vectors=np.zeros_like(whole), identity=["a", "b"])
    assert zipfile.ZipFile(folder / VECTORS_FILE).infolist()[0].compress_type
    assert load(collection, folder, monkeypatch)[1] == 1


def test_some_texts_are_replaced_and_the_rest_stays(collection, context):
    texts = ("other words", *context.collection.texts[1:-1], "noise1 again")
    before = context.documents.half.copy()
    other = context.with_texts(dataclasses.replace(context.collection, texts=texts))
    fresh = DocumentVectors.of_texts(texts, context.cache.encoder)
    np.testing.assert_allclose(other.documents.half, fresh.half, atol=1e-3)
    assert other.index.digest == BM25Index(texts).digest != context.index.digest
    assert other.index.parameters == context.index.parameters
    np.testing.assert_array_equal(context.documents.half, before)


def test_many_queries_are_made_into_terms_in_one_thread(context, monkeypatch):
    """Snowball's stemmers in Python keep the word that they are at: two threads mix words up."""
    threads = set()
    make_weights = type(context.index).query_weights

    def query_weights(index, text):
        threads.add(threading.get_ident())
        return make_weights(index, text)

    monkeypatch.setattr(type(context.index), "query_weights", query_weights)
    collection = context.collection.with_queries(("",) * 4, ("key1", "key2", "key3", "key4"))
    context.rank(collection, range(4), [{f"key{n}": 1.0} for n in range(1, 5)], 0.0, 3)
    assert threads == {threading.get_ident()}
