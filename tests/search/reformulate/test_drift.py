"""Typed words keep their share of a query, and what is found without them is counted."""

import shutil

import numpy as np
import pytest

from kytolly.benchmarks.suite import Options, Watch, progress_display
from kytolly.search.benchmark.query_drift import reformulation_drift
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.reformulate.choice import Choice, proposals
from kytolly.search.reformulate.device_env import DeviceQueries, used_proposals
from kytolly.search.reformulate.drift import drifted_documents, rare_words
from kytolly.search.reformulate.held_out import with_choice
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.report import drift_lines
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import make_table


def test_documents_without_a_rare_word_are_counted():
    index = BM25Index(["ice cave", "ice melts", "cave", "snow", "ice age", "ice"])
    typed = index.query_weights("caves in the ice melt zzz")
    assert rare_words(index, typed) == ["melt"]  # of cave 2, ice 4, melt 1: half of three is one
    assert rare_words(index, index.query_weights("ice")) == ["ice"]
    assert drifted_documents(index, typed, [0, 1, 3]) == 2
    assert drifted_documents(index, {"ice": 1.0, "cave": 1.0}, [0, 2, 4, 5]) == 2
    assert drifted_documents(index, {"zzz": 1.0}, [0, 1]) == 0  # no word to be held
    assert drifted_documents(index, {"snow": 1.0}, [*[0] * 10, 1]) == 10  # the first ten


def limited(run, share):
    agent = Reformulator.load(run)
    agent.context = agent.context.with_shares(share, share)
    return with_choice(agent, 0.0, Choice(0.0, 1.0))


@pytest.mark.parametrize("share", [0.4, 0.75, 1.0])
def test_reformulated_queries_keep_their_words(run, share):
    for text in ("key12 noise1", "key13 noise2 key13", "key11 zzz"):
        free = limited(run[0], None).reformulate(text)
        found = limited(run[0], share).reformulate(text)
        typed = found.weights.keys() - {term.term for term in found.added}
        before = Reformulator.load(run[0]).context.index.query_weights(text)
        for word in typed:
            assert found.weights[word] >= share * before[word] - 1e-3
        added, total = sum(term.weight for term in found.added), sum(before.values())
        assert added <= (1.0 - share) * total + 1e-3
        assert free.added and (share == 0.4 or free.weights != found.weights)


def test_what_is_used_in_pools_is_what_is_searched(run):
    """Dev queries, each word of which is typed once."""
    agent = limited(run[0], 0.6)
    context = SearchContext.load(agent.context.options, ("dev",))
    queries = [query for query in context.queries("dev") if query.has_relevant]
    table = make_table(queries, context.index, context.documents, context.rules)
    weights, _ = proposals(agent.scorer, DeviceQueries(table, context.rules), 0.0)
    features, state = table.candidate_features, table.state_features
    used = used_proposals(weights, features, state, context.rules, 0.0)
    plans = agent.plans(context.collection, [query.number for query in queries])
    for query, row, plan in zip(queries, used, plans, strict=True):
        changes = {place: float(row[place]) for place in np.flatnonzero(row)}
        assert plan.weights == pytest.approx(query.changed_weights(changes), abs=1e-4)


def test_a_run_of_an_earlier_version_has_no_limit(run, tmp_path):
    old = shutil.copytree(run[0], tmp_path / "run")
    path = old / "reformulation.yaml"
    lines = [line for line in path.read_text().splitlines() if "typed_share" not in line]
    path.write_text("\n".join(lines) + "\n")
    assert Reformulator.load(old).context.options.retrieval.typed_share is None


def test_the_report_compares_with_the_same_search():
    counts = {"bm25": 10, "agent": 12, "fused": 20, "agent_fused": 21}
    _, plain, fused = drift_lines(counts, 1.0)
    assert plain == "  agent 12, BM25 10 (1.20x)" and fused.endswith(" 20 (1.05x)")
    assert len(list(drift_lines(counts, 0.0))) == 2


def test_test_queries_are_counted(run):
    counted = run[1]["test"]["drifted"]
    assert set(counted) == {"bm25", "agent", "fused", "agent_fused"}
    assert 0 < counted["agent"] <= 10 * run[1]["test"]["queries"]


def test_the_benchmark_searches_with_each_limit(collection):
    pytest.importorskip("wordllama")
    options = Options(quick=True, collection=str(collection))
    report = reformulation_drift(options, Watch(progress_display()))
    drift = {(row["typed_share"], row["fusion"]): row["drift"] for row in report.data["rows"]}
    assert {share for share, _ in drift} == {None, 0.78}
    assert drift[0.78, 0.0] < drift[None, 0.0] and drift[0.78, 1.0] < 1.0
    assert len(report.rows) == len(drift) and report.rows[0][0] == "none"
