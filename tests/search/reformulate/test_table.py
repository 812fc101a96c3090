import numpy as np
import pytest

from kytolly.search.index.fusion import score_unit
from kytolly.search.reformulate.query import SearchRules
from kytolly.search.reformulate.table import (
    LIFT,
    PADDING,
    SHARES,
    concatenation,
    make_table,
    padded_rows,
    pool_documents,
    row_bytes,
    subset,
)
from tests.search.reformulate.made_queries import (
    RULES,
    Scores,
    few_queries,
    make_documents,
    make_query,
)

SMALL = SearchRules("ndcg@10", 3, 6, 64)


@pytest.fixture(scope="module")
def index():
    return Scores(documents=300, terms=12)


@pytest.fixture(scope="module")
def documents():
    return make_documents(300)


@pytest.fixture(scope="module")
def queries(index):
    return few_queries(index)


def test_a_large_pool_holds_all_documents_but_the_excluded_one(index, documents, queries):
    table = make_table(queries, index, documents, RULES)
    for row, query in enumerate(queries):
        found = np.array([doc for doc in range(300) if doc != query.excluded])
        scores = index.scores(query.weights)
        unit = scores[found].max()
        np.testing.assert_allclose(table.base[row, : len(found)], scores[found] / unit, rtol=1e-6)
        assert (table.base[row, len(found) :] == PADDING).all()
        cosine = np.maximum(documents[found] @ query.vector, 0)
        np.testing.assert_allclose(table.cosine[row, : len(found)], cosine, atol=1e-6)
        assert not table.cosine[row, len(found) :].any()
        for place, term in enumerate(query.candidates):
            column = index.columns[term][found] / unit
            np.testing.assert_allclose(table.columns[row, place, : len(found)], column, rtol=1e-3)
        for place, term in enumerate(query.lowerable, start=len(query.candidates)):
            column = -query.weights[term] * index.columns[term][found] / unit
            np.testing.assert_allclose(table.columns[row, place, : len(found)], column, rtol=1e-3)
        assert not table.columns[row, query.options :].any()
        places = table.relevant[row][table.relevant[row] >= 0]
        relevant = [doc for doc in query.relevant if doc != query.excluded]
        assert found[places].tolist() == relevant
        assert table.relevant_count[row] == len(query.relevant)


def ranked_lists(index, documents, query):
    """Scores of all documents, what is excluded at -inf, in units: BM25, cosines, both, lifted."""
    scores = index.scores(query.weights)
    if query.excluded >= 0:
        scores[query.excluded] = 0
    scores = scores / score_unit(scores)
    cosine = documents.cosines(query.vector)
    unit = score_unit(index.scores(query.weights) * (np.arange(300) != query.excluded))
    lifted = scores + cosine
    for term in query.candidates:
        lifted = lifted + LIFT * index.columns[term] / unit
    return {"bm25": scores, "cosine": cosine, "fused": scores + cosine, "lifted": lifted}


def pool_of(index, documents, query, size):
    lists = ranked_lists(index, documents, query)
    relevant = query.relevant[query.relevant != query.excluded][: size // 2]
    highest = lists["lifted"].copy()
    return pool_documents(
        lists["bm25"], lists["cosine"], highest, relevant, query.excluded, size
    ), lists


@pytest.mark.parametrize("excluded", [-1, 7])
def test_a_small_pool_holds_the_relevant_and_the_best_of_each_list(index, documents, excluded):
    for number in range(8):
        query = make_query(number, index, relevant=3, excluded=excluded)
        pool, lists = pool_of(index, documents, query, 64)
        assert len(pool) == 64 and (np.diff(pool) > 0).all() and excluded not in pool
        assert set(query.relevant) - {excluded} <= set(pool)
        others = np.arange(300) != excluded
        for name, share in SHARES.items():
            nth = np.sort(lists[name])[-int(share * 64)]
            assert set(np.flatnonzero((lists[name] > nth) & others)) <= set(pool), name
        outside = np.setdiff1d(np.flatnonzero(others), pool)
        chosen_for_lift = np.setdiff1d(pool, query.relevant)
        for name, share in SHARES.items():
            nth = np.sort(lists[name])[-int(share * 64)]
            chosen_for_lift = chosen_for_lift[lists[name][chosen_for_lift] < nth]
        assert len(chosen_for_lift) > 5
        least = lists["lifted"][chosen_for_lift].min()
        assert least >= lists["lifted"][outside].max() - 1e-6


@pytest.mark.parametrize("relevant", [30, 40, 200])
def test_many_relevant_documents_take_half_of_a_pool(index, documents, relevant):
    query = make_query(1, index, relevant=relevant, excluded=9)
    pool, _ = pool_of(index, documents, query, 64)
    wanted = [doc for doc in query.relevant if doc != 9][:32]
    assert len(pool) == 64 and set(wanted) <= set(pool) and 9 not in pool
    table = make_table([query], index, documents, SMALL)
    places = table.relevant[0][table.relevant[0] >= 0]
    assert len(places) == len(wanted) and table.relevant_count[0] == relevant
    lists = ranked_lists(index, documents, query)
    np.testing.assert_allclose(table.base[0, places], lists["bm25"][wanted], rtol=1e-6)


def test_a_relevant_document_that_is_excluded_is_not_in_the_pool(index, documents):
    query = make_query(1, index, relevant=3)
    query = query._replace(excluded=int(query.relevant[1]))
    table = make_table([query], index, documents, RULES)
    assert (table.relevant[0] >= 0).sum() == 2 and table.relevant_count[0] == 3


def test_scores_near_zero_do_not_overflow_half_precision(index, documents):
    small = Scores(documents=300, terms=12)
    query = make_query(0, small)
    for term in query.weights:
        small.columns[term] = small.columns[term] * np.float32(1e-6)
    table = make_table([query], small, documents, RULES)
    assert np.isfinite(table.columns).all() and table.columns.max() > 1e4


def test_some_rows_of_a_table_are_a_table_of_those_queries(index, documents, queries):
    whole = make_table(queries, index, documents, SMALL)
    chosen, fresh = subset(whole, [3, 0]), [queries[3], queries[0]]
    for name, part in make_table(fresh, index, documents, SMALL)._asdict().items():
        np.testing.assert_array_equal(getattr(chosen, name), part, name)
        assert getattr(chosen, name).dtype == part.dtype


def test_tables_are_joined_with_as_many_relevant_documents_as_the_widest(index, documents, queries):
    parts = [make_table(some, index, documents, SMALL) for some in (queries[:2], queries[2:])]
    whole = make_table(queries, index, documents, SMALL)
    for name, part in concatenation(parts)._asdict().items():
        np.testing.assert_array_equal(part, getattr(whole, name), name)


def test_a_table_needs_queries_with_candidates(index, documents, queries):
    with pytest.raises(ValueError, match="no queries to make a table of"):
        make_table([], index, documents, SMALL)
    with pytest.raises(ValueError, match="query 0 has no candidates"):
        make_table([queries[0]._replace(candidates=[])], index, documents, SMALL)
    with pytest.raises(ValueError, match="no query of the table is selected"):
        subset(make_table(queries, index, documents, SMALL), [])


def test_the_size_of_a_row_is_known_before_the_table_is_made(index, documents, queries):
    table = make_table(queries, index, documents, SMALL)
    rest = table.number, table.relevant, table.relevant_count, table.state_features
    made = table.bytes - sum(part.nbytes for part in rest)
    assert made == 5 * row_bytes(SMALL, table.candidate_features.shape[2])


def test_rows_are_filled_up_at_their_end():
    np.testing.assert_array_equal(
        padded_rows([np.array([1.0]), np.array([2.0, 3.0])], 3), [[1, 0, 0], [2, 3, 0]]
    )
