"""The share that typed words keep is the least with which dev queries do not drift."""

import numpy as np
import pytest

from kytolly.search.reformulate import typed_share
from kytolly.search.reformulate.choice import FEW_QUERIES, Choice
from kytolly.search.reformulate.drift import TOP, drifted_documents
from kytolly.search.reformulate.held_out import with_choice
from kytolly.search.reformulate.options import TYPED_SHARE, RetrievalOptions, read_run_options
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import Sample
from kytolly.search.reformulate.train import train
from kytolly.search.reformulate.typed_share import SHARES, drifts, with_typed_share
from tests.search.reformulate.tiny_collection import make_options


@pytest.fixture(scope="module")
def dev(run):
    """The context with the share left open, and dev queries of a run."""
    agent = Reformulator.load(run[0])
    context = SearchContext.load(agent.context.options, ("dev",)).with_share("auto")
    queries = context.queries("dev")
    return context, Sample("dev", queries, [agent.scorer], np.zeros(len(queries), np.int64))


def chosen(dev, monkeypatch, by_fusion, count=FEW_QUERIES):
    context, sample = dev
    many = sample._replace(queries=sample.queries[:1] * count)
    monkeypatch.setattr(typed_share, "drifts", lambda context, sample, fusion: by_fusion[fusion])
    return with_typed_share(context, many, list(by_fusion)).options.retrieval.typed_share


def test_the_least_share_fits_searches_with_cosines_and_without(dev, monkeypatch):
    falling = np.linspace(1.5, 1.1, len(SHARES))
    low = falling - 0.3
    place = int(np.argmax(falling <= 1.2))
    assert chosen(dev, monkeypatch, {0.0: low, 1.0: low}) == SHARES[0]
    assert chosen(dev, monkeypatch, {0.0: low, 1.0: falling}) == SHARES[place]
    assert chosen(dev, monkeypatch, {0.0: falling, 1.0: low}) == SHARES[place]
    assert chosen(dev, monkeypatch, {0.0: falling + 1.0}) == SHARES[-1]  # nothing is low enough


def test_few_queries_say_nothing_and_what_is_given_stays(dev, monkeypatch):
    low = np.full(len(SHARES), 0.9)
    assert chosen(dev, monkeypatch, {0.0: low}, FEW_QUERIES - 1) == TYPED_SHARE
    context = dev[0]
    assert with_typed_share(context, None, [0.0]).options.retrieval.typed_share == TYPED_SHARE
    given = context.with_share(0.33)
    assert with_typed_share(given, dev[1], [0.0]) is given
    assert RetrievalOptions().typed_share == "auto"
    assert context.rules.typed_share == TYPED_SHARE  # as long as nothing has chosen


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
        agent.context = context.with_share(share)
        everything = with_choice(agent, 0.0, Choice(0.0, 1.0))
        plans = everything.plans(context.collection, numbers)
        assert found == pytest.approx(drifted([plan.weights for plan in plans]) / max(before, 1))


def test_a_run_writes_the_share_that_it_chose(collection, tmp_path, monkeypatch):
    monkeypatch.setattr(typed_share, "FEW_QUERIES", 10)
    lines, low = [], np.where(np.array(SHARES) < 0.6, 1.3, 1.0)
    monkeypatch.setattr(typed_share, "drifts", lambda context, sample, fusion: low)
    options = make_options(collection, retrieval={"typed_share": "auto"}, epochs=0)
    train(options, log_dir=tmp_path / "run", say=lines.append)
    assert any(line.startswith("typed words keep at least 0.6 of ") for line in lines)
    agent = Reformulator.load(tmp_path / "run")
    assert agent.context.rules.typed_share == 0.6
    written = read_run_options(tmp_path / "run" / "reformulation.yaml")
    assert written.retrieval.typed_share == 0.6
