"""The share that typed words keep is the least with which dev queries do not drift."""

import numpy as np
import pytest

from kytolly.search.reformulate import train as training
from kytolly.search.reformulate import typed_share
from kytolly.search.reformulate.choice import FEW_QUERIES, Choice
from kytolly.search.reformulate.drift import TOP, drifted_documents
from kytolly.search.reformulate.held_out import with_choice
from kytolly.search.reformulate.options import TYPED_SHARE, RetrievalOptions, read_run_options
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import Sample
from kytolly.search.reformulate.train import train
from kytolly.search.reformulate.typed_share import MOST_DRIFT, SHARES, drifts, with_typed_shares
from tests.search.reformulate.tiny_collection import make_options


@pytest.fixture(scope="module")
def dev(run):
    """The context with the shares left open, and dev queries of a run."""
    agent = Reformulator.load(run[0])
    context = SearchContext.load(agent.context.options, ("dev",)).with_shares("auto", "auto")
    queries = context.queries("dev")
    return context, Sample("dev", queries, [agent.scorer], np.zeros(len(queries), np.int64))


def chosen(dev, monkeypatch, by_fusion, count=FEW_QUERIES):
    context, sample = dev
    many = sample._replace(queries=sample.queries[:1] * count)
    monkeypatch.setattr(typed_share, "drifts", lambda context, sample, fusion: by_fusion[fusion])
    return with_typed_shares(context, many, list(by_fusion)).rules.typed_shares


def test_the_least_share_that_does_not_drift_is_chosen(dev, monkeypatch):
    falling = np.linspace(1.5, 1.1, len(SHARES))
    place = int(np.argmax(falling <= MOST_DRIFT))
    assert 0 < place < len(SHARES) - 1
    expected = (SHARES[0], SHARES[place])
    assert chosen(dev, monkeypatch, {0.0: falling - 0.3, 2.0: falling}) == expected
    assert chosen(dev, monkeypatch, {0.0: falling, 2.0: falling - 0.3}) == expected[::-1]
    nothing_fits = {0.0: falling + 1.0}  # and there are no cosines
    assert chosen(dev, monkeypatch, nothing_fits) == (SHARES[-1], SHARES[-1])


def test_few_queries_say_nothing_and_what_is_given_stays(dev, monkeypatch):
    low, usual = np.full(len(SHARES), 0.9), (TYPED_SHARE, TYPED_SHARE)
    assert chosen(dev, monkeypatch, {0.0: low, 1.0: low}, FEW_QUERIES - 1) == usual
    context = dev[0]
    assert context.rules.typed_shares == usual  # as long as nothing has chosen
    assert with_typed_shares(context, None, [0.0, 1.0]).rules.typed_shares == usual
    for given, expected in (((0.33, "auto"), (0.33, 0.33)), ((None, 0.5), (None, 0.5))):
        fixed = context.with_shares(*given)
        assert with_typed_shares(fixed, dev[1], [0.0, 1.0]) is fixed
        assert fixed.rules.typed_shares == expected
    assert RetrievalOptions().typed_share == "auto"


def test_drift_is_that_of_searches_with_all_proposals(dev, run):
    context, sample = dev
    numbers = [query.number for query in sample.queries]
    agent = Reformulator.load(run[0])

    def drifted(weights):
        docs = context.collection.doc_index
        hits = context.rank(context.collection, numbers, weights, 0.0, TOP)
        typed = [context.index.query_weights(context.collection.queries[n]) for n in numbers]
        places = [[docs[hit.doc_id] for hit in ranking] for ranking in hits]
        rows = zip(typed, places, strict=True)
        return sum(drifted_documents(context.index, *row) for row in rows)

    before = drifted([query.weights for query in sample.queries])
    for share, found in zip(SHARES, drifts(context, sample, 0.0), strict=True):
        agent.context = context.with_shares(share, share)
        everything = with_choice(agent, 0.0, Choice(0.0, 1.0))
        plans = everything.plans(context.collection, numbers)
        assert found == pytest.approx(drifted([plan.weights for plan in plans]) / max(before, 1))


def test_a_run_writes_the_share_that_it_chose(collection, tmp_path, monkeypatch):
    monkeypatch.setattr(typed_share, "FEW_QUERIES", 10)
    seen, make_choice = [], training.make_choice

    def watched(networks, dev, *rest):
        seen.append(dev.rules.typed_shares)
        return make_choice(networks, dev, *rest)

    monkeypatch.setattr(training, "make_choice", watched)
    lines, low = [], np.where(np.array(SHARES) < 0.6, 1.3, 1.0)
    monkeypatch.setattr(typed_share, "drifts", lambda context, sample, fusion: low)
    options = make_options(collection, retrieval={"typed_share": "auto"}, epochs=0)
    train(options, log_dir=tmp_path / "run", say=lines.append)
    assert any(line.startswith("over BM25, typed words keep at least 0.6 of ") for line in lines)
    agent = Reformulator.load(tmp_path / "run")
    assert agent.context.rules.typed_shares == (0.6, 0.6)
    written = read_run_options(tmp_path / "run" / "reformulation.yaml")
    assert written.retrieval.typed_share == 0.6
    assert seen == [(0.6, 0.6)]  # pools are changed as searches are
