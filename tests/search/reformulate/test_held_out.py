"""The table of the test queries: what is compared, with what, and that it is what the runs hold."""

import importlib.util
import json

import numpy as np
import pytest

from kytolly.search.index.corpus import load_collection
from kytolly.search.index.metrics import per_query
from kytolly.search.index.trec import read_run
from kytolly.search.reformulate import held_out
from kytolly.search.reformulate.choice import Choice, Choices
from kytolly.search.reformulate.held_out import Outcome, difference, share_of_ceiling
from kytolly.search.reformulate.network import make_scorer
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.report import bin_means, plot_calibration
from kytolly.search.reformulate.report import test_lines as report_lines
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.train import prepare
from tests.search.reformulate.tiny_collection import make_options, write_collection

SYSTEMS = ["bm25", "rm3", "rocchio", "agent", "fused", "agent_fused", "ceiling"]


@pytest.fixture(scope="module")
def reformulator(collection):
    """An agent that learned nothing, whose small weights are all used, beside cosines."""
    options = make_options(collection)
    preparation = prepare(options, lambda line: None, ("train", "dev", "test"))
    network = make_scorer(preparation.train, options.rl_agent)
    choices = Choices(0.5, {one: Choice(one, 1.0) for one in (0.0, 0.5)})
    return Reformulator(preparation.context, network, choices)


@pytest.fixture(scope="module")
def tested(reformulator, tmp_path_factory):
    """The folder of a run, and its test metrics."""
    folder, find_spec = tmp_path_factory.mktemp("tested"), importlib.util.find_spec
    with pytest.MonkeyPatch.context() as patch:
        absent = lambda name: None if name == "lightgbm" else find_spec(name)  # noqa: E731
        patch.setattr(importlib.util, "find_spec", absent)
        return folder, held_out.test_metrics(reformulator, folder)


def outcome(values, orders, places=None):
    places = np.arange(len(values)) if places is None else np.array(places)
    return Outcome({"ap": np.array(values)}, np.array(orders), places)


def test_a_difference_counts_rankings_and_metrics_apart():
    base = outcome([0.5, 0.5, 0.2, 1.0], [1, 2, 3, 4])
    found = difference(outcome([0.5, 0.7, 0.1, 1.0], [1, 9, 9, 9]), base, "ap")
    assert found["difference"] == pytest.approx(0.025)  # (0.2 - 0.1) / 4
    assert (found["changed"], found["helped"], found["hurt"]) == (0.75, 0.25, 0.25)
    assert found["low"] < 0.025 < found["high"]
    some = difference(outcome([0.4, 1.0], [9, 4], places=[2, 3]), base, "ap")
    assert some["difference"] == pytest.approx(0.1) and some["changed"] == 0.5


def test_the_share_of_the_ceiling_is_that_of_its_own_queries():
    found = {
        "bm25": outcome([0.5, 0.2, 0.0], [1, 2, 3]),
        "agent": outcome([1.0, 0.3, 0.1], [1, 2, 3]),
        "ceiling": outcome([0.4, 0.4], [2, 3], places=[1, 2]),
    }
    assert share_of_ceiling(found, "ap") == pytest.approx(1 / 3)  # 0.2 of 0.6
    found["ceiling"] = outcome([0.2, 0.0], [2, 3], places=[1, 2])
    assert share_of_ceiling(found, "ap") is None  # nothing can be gained


def test_the_table_holds_what_the_run_files_hold(tested, collection):
    folder, found = tested
    assert list(found["systems"]) == SYSTEMS and found["queries"] == 10
    assert found == json.loads(json.dumps(found)) and found["fusion"] == 0.5
    qrels = load_collection(collection, ("test",)).judgments["test"]
    for name, rows in found["systems"].items():
        assert list(rows) == ["ndcg@10", "ap", "recall@40", "mrr@10"]
        values = per_query(qrels, read_run(folder / f"test_{name}.run"), list(rows))
        for metric, row in rows.items():
            assert row["mean"] == pytest.approx(np.mean(list(values[metric].values())), abs=1e-9)
            if name != "bm25":
                base = found["systems"]["bm25"][metric]["mean"]
                assert row["over_bm25"]["difference"] == pytest.approx(row["mean"] - base)
    own = found["systems"]["agent_fused"]["ndcg@10"]
    fused = found["systems"]["fused"]["ndcg@10"]["mean"]
    assert own["over_fused"]["difference"] == pytest.approx(own["mean"] - fused)
    assert found["systems"]["ceiling"]["ndcg@10"]["over_bm25"]["difference"] > 0.02
    assert found["systems"]["ceiling"]["ndcg@10"]["over_bm25"]["hurt"] == 0.0


def test_queries_left_unchanged_are_counted_with_cosines_and_without(reformulator, tmp_path):
    choices = Choices(0.5, {0.0: Choice(0.0, 1.0), 0.5: Choice(0.5, 0.0)})  # with cosines nothing
    careful = Reformulator(reformulator.context, reformulator.scorer, choices)
    found = held_out.test_metrics(careful, tmp_path)
    assert (found["queries"], found["unchanged_plain"], found["unchanged"]) == (10, 1, 10)
    assert found["systems"]["agent"]["ndcg@10"]["over_bm25"]["changed"] == 0.9
    first = next(iter(report_lines(found)))
    assert first.startswith("Test: 10 queries, 1 left unchanged (10 where cosines count), 0 with")
    first = next(iter(report_lines({**found, "fusion": 0.0, "unchanged": 1})))
    assert first.startswith("Test: 10 queries, 1 left unchanged, 0 without a relevant document")


def test_the_agent_alone_searches_without_cosines(tested, reformulator):
    folder, _ = tested
    scores = {name: read_run(folder / f"test_{name}.run") for name in ("agent", "agent_fused")}
    index, documents = reformulator.context.index, reformulator.context.collection.doc_index
    plan = held_out.with_choice(reformulator, 0.0).plans(
        reformulator.context.collection, [reformulator.context.collection.query_ids.index("q11.0")]
    )[0]
    assert plan.changes
    expected = index.scores(plan.weights)
    for doc, score in scores["agent"]["q11.0"]:
        assert score == pytest.approx(float(expected[documents[doc]]), rel=1e-5)
    assert scores["agent"]["q11.0"] != scores["agent_fused"]["q11.0"]


def test_what_is_tuned_is_at_least_bm25_on_dev(tested):
    _, found = tested
    for name, grid in (("rm3", held_out.RM3_GRID), ("rocchio", held_out.ROCCHIO_GRID)):
        settings = found["tuned"][name]
        assert all(settings[key] in grid[key] for key in grid)
    assert held_out.RM3_GRID["original"][0] == 1.0 and held_out.ROCCHIO_GRID["beta"][0] == 0.0


def test_without_dev_queries_nothing_is_tuned(tmp_path, reformulator):
    other = write_collection(tmp_path / "tiny")
    (other / "qrels" / "dev.tsv").unlink()
    context = SearchContext.load(make_options(other), ("train", "test"))
    said = []
    context.phases.say = said.append
    queries = held_out.TestQueries(context, tmp_path)
    assert held_out.other_systems(queries) == ({}, {})
    assert "test: no dev queries to tune RM3 and Rocchio on: they are left out" in said


def test_boosted_terms_learn_from_train_and_are_tuned_on_dev(tmp_path, reformulator, monkeypatch):
    given = []

    def fit_term_model(train, dev, index, metric, seed):
        given.append((train, dev))
        return lambda query: {**query.weights, query.candidates[0]: 9.0}

    monkeypatch.setattr(held_out, "fit_term_model", fit_term_model)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(held_out, "MAX_LEARNED", 6)
    queries = held_out.TestQueries(reformulator.context, tmp_path)
    systems, _ = held_out.other_systems(queries)
    ((train, dev),) = given
    assert 0 < len(train) <= 6 and 0 < len(dev) <= 6 and all(q.has_relevant for q in train + dev)
    weights = systems["boosted"].weights
    changed = [number for number, own in enumerate(weights) if 9.0 in own.values()]
    assert len(weights) == 10 and len(changed) == 9  # one query has no candidate


def test_few_queries_have_a_ceiling(tmp_path, reformulator, monkeypatch):
    monkeypatch.setattr(held_out, "MAX_CEILING", 4)
    found = held_out.ceilings(held_out.TestQueries(reformulator.context, tmp_path))
    (system,) = found.values()  # without a rewriter there is one
    assert system.places is not None and len(system.weights) == len(system.places) == 4


@pytest.mark.parametrize("fusion", [0.0, 0.5])
def test_the_table_fits_a_terminal(tested, fusion):
    lines = list(report_lines({**tested[1], "fusion": fusion}))
    assert max(map(len, lines)) <= 100 and not any("\x1b" in line for line in lines)
    text = "\n".join(lines)
    assert ("BM25 + 0.5 cosines" in text) == bool(fusion) == ("agent + 0.5 cosines" in text)
    assert text.count("greedy ceiling") == 1 and text.count("Rocchio") == 5
    assert any("\x1b" in line for line in report_lines(tested[1], styled=True))


def test_bins_hold_all_queries_by_what_is_expected():
    expected = np.array([0.3, 0.1, 0.2, 0.4])
    gain, changed = np.array([3.0, 1.0, 2.0, 5.0]), np.array([True, False, False, True])
    found = bin_means(expected, gain, changed)
    assert found.queries == [1] * 4 and found.gain == [1.0, 2.0, 3.0, 5.0]
    assert found.expected == [0.1, 0.2, 0.3, 0.4] and found.changed == [0.0, 0.0, 1.0, 1.0]
    many = bin_means(np.arange(25.0), np.arange(25.0) * 2, np.ones(25, bool))
    assert many.queries == [3] * 5 + [2] * 5 and many.gain[0] == 2.0  # of 0, 2 and 4
    assert many.error[0] == pytest.approx(np.std([0, 2, 4]) / np.sqrt(3))
    titles = [ax.get_title() for ax in plot_calibration(found, "ap").axes]
    assert titles[0] == "4 queries, 50% of them changed"


def test_calibration_is_that_of_the_whole_proposals(tested):
    folder, found = tested
    bins = found["calibration"]
    assert sum(bins["queries"]) == 9  # one query has no candidate
    assert bins["expected"] == sorted(bins["expected"])
    own = found["systems"]["agent_fused"]["ndcg@10"]["over_fused"]["difference"]
    mean = sum(n * gain for n, gain in zip(bins["queries"], bins["gain"], strict=True)) / 10
    assert mean == pytest.approx(own)  # all is used at scale 1 here
    assert (folder / "calibration.png").stat().st_size > 10_000
