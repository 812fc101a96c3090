"""Which terms an agent changes: the classes by hand, and gains as a search of all documents has."""

import csv
import json

import numpy as np
import pytest

from kytolly.search.index.metrics import per_query
from kytolly.search.reformulate import term_report
from kytolly.search.reformulate.choice import Choice, Choices
from kytolly.search.reformulate.network import make_scorer
from kytolly.search.reformulate.query import with_judgments
from kytolly.search.reformulate.reformulator import Reformulator, trec_run
from kytolly.search.reformulate.train import prepare
from tests.search.reformulate.tiny_collection import make_options

FUSION = 0.5


@pytest.fixture(scope="module")
def planned(collection):
    """The search context, whose pools hold all documents, and plans for its dev queries."""
    options = make_options(collection, {"query_terms": 2}, pool_documents=256)
    context = (preparation := prepare(options, lambda line: None)).context
    network = make_scorer(preparation.train, options.rl_agent)
    choices = Choices(FUSION, {FUSION: Choice(FUSION, 1.0)})
    numbers, skipped = context.collection.split("dev"), []
    queries = with_judgments(
        context.mine(context.collection, numbers, skipped), context.collection, "dev"
    )
    reformulator = Reformulator(context, network, choices, FUSION)
    return context, reformulator.plans(context.collection, numbers, (queries, skipped))


def test_it_is_right_to_change_good_terms_and_to_leave_the_others():
    gain = np.array([0.2, 0.1, 0.3, 0.0, 1e-9, 0.0, -0.1, -0.2])
    changed = np.array([True, True, False, True, False, False, True, False])
    report = term_report.term_report(gain, changed, "candidate")
    assert report.counts.tolist() == [[2, 1], [1, 2], [1, 1]]
    assert report.columns == ("added", "left") and report.support.tolist() == [3, 3, 2]
    # Of 4 added terms 2 are good; of 4 left ones 3 are rightly left.
    np.testing.assert_allclose(report.precision, [2 / 4, 3 / 4, 3 / 4])
    np.testing.assert_allclose(report.recall, [2 / 3, 2 / 3, 1 / 2])
    np.testing.assert_allclose(report.f1, [4 / 7, 12 / 17, 3 / 5])
    assert report.accuracy == 5 / 8
    assert report.macro_f1 == pytest.approx((4 / 7 + 12 / 17 + 3 / 5) / 3)
    assert report.weighted_f1 == pytest.approx((3 * 4 / 7 + 3 * 12 / 17 + 2 * 3 / 5) / 8)
    assert report.weakest == ("good", pytest.approx(4 / 7), "left", 1)


def test_an_agent_that_changes_nothing_finds_no_good_term():
    report = term_report.term_report(np.array([0.2, 0.0]), np.zeros(2, bool), "query_term")
    assert report.recall.tolist() == [0.0, 1.0, 0.0] and report.f1[0] == 0.0
    assert report.weakest == ("good", 0.0, "left", 1)
    assert report.macro_f1 == pytest.approx((0 + 2 / 3) / 2)  # no term is bad


def test_gains_are_those_of_a_search_with_one_term_more(planned):
    context, plans = planned
    plan = next(one for one in plans if one.query is not None and len(one.changes) > 1)
    query, number = plan.query, plan.query.number
    terms = term_report.terms_of(context, [plan], FUSION)
    assert len(terms.gain) == query.options and terms.in_query.sum() == len(query.lowerable)
    assert np.flatnonzero(terms.changed).tolist() == sorted(plan.changes)
    name, qrels = context.rules.metric, context.collection.judgments["dev"]

    def value(weights):
        hits = context.rank(context.collection, [number], [weights], FUSION, 1000)
        run = trec_run(context.collection, [number], hits)
        return per_query({key: qrels[key] for key in run}, run, [name])[name].popitem()[1]

    before = value(query.weights)
    for place, gain in enumerate(terms.gain):
        change = plan.changes.get(place, term_report.USUAL_WEIGHT)
        alone = query.changed_weights({place: change})
        assert gain == pytest.approx(value(alone) - before, abs=1e-5)
    assert np.abs(terms.gain).max() > 0.01


def test_the_files_and_the_lines_hold_every_term(planned, tmp_path):
    context, plans = planned
    found = term_report.report_terms(context, plans, FUSION, tmp_path)
    usable = [plan for plan in plans if plan.query is not None]
    assert found == json.loads(json.dumps(found)) and found["queries"] == len(usable)
    for kind, count in (
        ("candidate", sum(len(plan.query.candidates) for plan in usable)),
        ("query_term", sum(len(plan.query.lowerable) for plan in usable)),
    ):
        assert found[kind][term_report.NOUNS[kind]] == count
        rows = list(csv.DictReader((tmp_path / f"{kind}_confusion_matrix.csv").open()))
        assert [row["gain of the term alone"] for row in rows] == ["good", "neutral", "bad"]
        action = term_report.ACTIONS[kind][0]
        for row in rows:
            shown = found[kind]["classes"][row["gain of the term alone"]]
            assert (int(row[action]), int(row["left"])) == (shown[action], shown["left"])
        assert (tmp_path / f"{kind}_confusion_matrix.png").stat().st_size > 5_000
        assert (tmp_path / f"{kind}_class_metrics.csv").is_file()
    changed = sum(len(plan.changes) for plan in usable)
    table = [row for kind in term_report.ACTIONS for row in found[kind]["classes"].values()]
    assert sum(row.get("added", 0) + row.get("lowered", 0) for row in table) == changed > 0
    lines = list(term_report.term_lines(found, "ndcg@10", used=False))
    assert max(map(len, lines)) <= 100 and "proposals that are not used" in lines[1]


def test_few_queries_of_many_are_drawn(planned, tmp_path, monkeypatch):
    context, plans = planned
    monkeypatch.setattr(term_report, "MAX_QUERIES", 3)
    assert term_report.report_terms(context, plans, FUSION, tmp_path)["queries"] == 3
    skipped = [plan for plan in plans if plan.query is None]
    assert skipped and term_report.report_terms(context, skipped, FUSION, tmp_path) == {}
