"""The parts of the ceiling: what knows more gains more, and limits are kept."""

import itertools

import numpy as np
import pytest

from kytolly.benchmarks.suite import Options, Watch, progress_display
from kytolly.search.benchmark.query_ceiling import (
    ROWS,
    STEPS,
    fitted_gains,
    greedy_gains,
    reformulation_ceiling,
    with_relevant_terms,
)
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.query import SearchRules
from kytolly.search.reformulate.search import SearchContext
from tests.search.reformulate.made_queries import helpful_table
from tests.search.reformulate.tiny_collection import make_options, write_collection

RULES = SearchRules("ndcg@10", 4, 4, 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("ceiling") / "tiny")


@pytest.fixture(scope="module")
def table():
    """Six queries of weight 3 with four candidates each, one of which helps."""
    return helpful_table(6)


def best_gains(queries, terms):
    """[Q] the largest gain of any choice of so many terms and steps."""
    start = queries.values(0.0, np.zeros((queries.num_queries, 4), np.float32))
    best = np.zeros(queries.num_queries)
    for places in itertools.combinations(range(4), terms):
        for steps in itertools.product(STEPS, repeat=terms):
            weights = np.zeros((queries.num_queries, 4), np.float32)
            weights[:, places] = steps
            best = np.maximum(best, queries.values(0.0, weights) - start)
    return best


def test_the_greedy_search_finds_the_best_change(table):
    queries = DeviceQueries(table, RULES)
    one = greedy_gains(table, RULES._replace(max_terms=1), 0.0)
    np.testing.assert_allclose(one, best_gains(queries, 1), atol=1e-6)
    more = greedy_gains(table, RULES, 0.0)
    assert (more >= one).all() and more.mean() > 0.2
    assert (more <= best_gains(queries, 2) + 0.2).all()


def test_the_greedy_search_keeps_the_limits(table):
    assert (greedy_gains(table, RULES._replace(typed_shares=(1.0, 0.0)), 0.0) == 0.0).all()
    limited = greedy_gains(table, RULES._replace(typed_shares=(0.97, 0.0)), 0.0)
    assert (limited <= greedy_gains(table, RULES, 0.0) + 1e-6).all()
    assert (greedy_gains(table, RULES._replace(max_terms=0), 0.0) == 0.0).all()


def test_weights_of_each_query_find_what_helps(table):
    queries = DeviceQueries(table, RULES)
    gains = fitted_gains(queries, 0.0)
    assert gains.mean() > 0.8 * greedy_gains(table, RULES, 0.0).mean()


def test_terms_of_relevant_documents_are_added_once(folder):
    context = SearchContext.load(make_options(folder), ("dev",))
    query = next(query for query in context.queries("dev") if query.has_relevant)
    more = with_relevant_terms(context, query)
    assert len(set(more.candidates)) == len(more.candidates) > len(query.candidates)
    held = context.index.tokenizer(context.collection.texts[int(query.relevant[0])])
    assert set(held) <= {*more.candidates, *query.weights}
    own = more.candidate_features[len(more.candidates) :]
    np.testing.assert_array_equal(own, query.candidate_features[len(query.candidates) :])


def test_each_row_has_one_oracle_less(folder):
    pytest.importorskip("wordllama")
    options = Options(quick=True, collection=str(folder))
    report = reformulation_ceiling(options, Watch(progress_display()))
    assert [row[0] for row in report.rows] == [name for name, _ in ROWS]
    for fusion in ("0", "1"):
        gains = [part[fusion]["gain"] for part in report.data.values()]
        assert gains[0] >= gains[1] >= gains[2] > 0.0
        lost = [part[fusion]["lost"] for part in report.data.values()]
        assert sum(lost[2:]) == pytest.approx(1.0 - gains[-1] / gains[1])
    assert sum(note.startswith("Learned from ") for note in report.notes) == 4
    assert sum(note.startswith("Selection over ") for note in report.notes) == 2


def test_a_collection_whose_dev_queries_cannot_be_used_is_refused(tmp_path):
    folder = write_collection(tmp_path / "tiny")
    text = "query-id\tcorpus-id\tscore\nempty-dev\tgood0.0\t1\n"
    (folder / "qrels" / "dev.tsv").write_text(text)
    with pytest.raises(ValueError, match="lacks train or dev queries that can be used; expected"):
        reformulation_ceiling(
            Options(quick=True, collection=str(folder)), Watch(progress_display())
        )
