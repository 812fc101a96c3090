import numpy as np
import pytest
import tensorflow as tf

from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.pool import (
    BLOCK,
    SHOWN_SCORES,
    TableTooLarge,
    candidate_columns,
    make_pool,
    make_pools,
)
from kytolly.reformulation.query import EpisodeRules
from kytolly.reformulation.table import make_table, padded_rows, subset
from tests.reformulation.made_queries import Scores, make_query

RULES = EpisodeRules("ndcg@10", 3, 6, 0.3)


@pytest.fixture(scope="module")
def index():
    return Scores(documents=500, terms=12)


@pytest.fixture(scope="module")
def queries(index):
    return [make_query(n, index, 2 + n, 2) for n in range(5)]


def test_columns_hold_what_each_candidate_adds(index):
    touched, columns = candidate_columns(["t0", "t3"], index, 0.5)
    whole = np.zeros((2, 500), np.float32)
    whole[:, touched] = columns
    np.testing.assert_array_equal(whole, 0.5 * np.stack([index.columns[t] for t in ("t0", "t3")]))


def test_the_pool_is_part_of_the_collection_in_its_order(index, queries):
    for query in queries:
        pool = make_pool(query, index, RULES)
        count = len(pool.documents)
        assert (np.diff(pool.documents) > 0).all() and count <= 500
        scores = index.scores(query.weights)
        np.testing.assert_array_equal(pool.base.reshape(-1)[:count], scores[pool.documents])
        assert np.isneginf(pool.base.reshape(-1)[count:]).all()
        assert set(pool.documents[pool.relevant]) <= set(query.relevant)
        best = np.sort(scores)[::-1][:SHOWN_SCORES]
        np.testing.assert_array_equal(np.sort(pool.base.reshape(-1))[::-1][:SHOWN_SCORES], best)


def test_documents_far_below_are_left_out():
    index = Scores(documents=1000, terms=12)
    index.columns["t0"] = np.where(np.arange(1000) < 30, 100.0, 0.0).astype(np.float32)
    query = make_query(0, index)._replace(weights={"t0": 1.0}, relevant=np.array([3]))
    assert len(make_pool(query, index, RULES).documents) < 100


def test_some_rows_of_a_table_are_a_table_of_those_queries(index, queries):
    chosen = subset(make_table(queries, index, RULES), [3, 0])
    fresh = make_table([queries[3], queries[0]], index, RULES)
    for name, part in fresh._asdict().items():
        if name != "rules":
            np.testing.assert_array_equal(getattr(chosen, name), part, name)
            assert getattr(chosen, name).dtype == part.dtype
    env = DeviceQueries(chosen)
    state, _, _ = env.step(env.begin(tf.constant([1])), tf.constant([1]), tf.zeros([1, 0]))
    other = DeviceQueries(fresh)
    same, _, _ = other.step(other.begin(tf.constant([1])), tf.constant([1]), tf.zeros([1, 0]))
    np.testing.assert_array_equal(state.scores, same.scores)


def test_a_table_needs_queries_with_candidates(index, queries):
    with pytest.raises(ValueError, match="no queries to make a table of"):
        make_table([], index, RULES)
    with pytest.raises(ValueError, match="query 0 has no candidates"):
        make_table([queries[0]._replace(candidates=[])], index, RULES)
    with pytest.raises(ValueError, match="no query of the table is selected"):
        subset(make_table(queries, index, RULES), [])


def test_a_table_knows_its_size(index, queries):
    table = make_table(queries, index, RULES)
    assert table.bytes > table.columns.nbytes
    assert table.columns.shape[1] == BLOCK and not table.columns[0].any()


def test_rows_are_filled_up_at_their_end():
    np.testing.assert_array_equal(
        padded_rows([np.array([1.0]), np.array([2.0, 3.0])], 3, -1), [[1, -1, -1], [2, 3, -1]]
    )


def test_pools_are_limited_by_their_width_and_their_bytes():
    index = Scores(documents=1000, terms=12)
    index.columns["t0"] = np.where(np.arange(1000) < 30, 100.0, 0.0).astype(np.float32)
    wide = make_query(0, index)._replace(weights={"t1": 1.0}, candidates=["t2", "t3"])
    narrow = wide._replace(weights={"t0": 1.0}, relevant=np.array([3]))
    queries = [narrow, wide, narrow]
    kept, pools = make_pools(queries, index, RULES)
    assert kept == [0, 1, 2] and pools[1].base.size > pools[0].base.size
    kept, some = make_pools(queries, index, RULES, widest=pools[0].base.size)
    assert kept == [0, 2] and len(some) == 2
    taken = 2 * (pools[0].base.nbytes + pools[0].columns.nbytes)
    assert make_pools(queries, index, RULES, pools[0].base.size, taken)[0] == [0, 2]
    with pytest.raises(TableTooLarge, match=f"3 of 3 queries take {taken:,} bytes"):
        make_pools(queries, index, RULES, pools[0].base.size, taken - 1)
