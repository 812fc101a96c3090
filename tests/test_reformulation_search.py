"""Episodes searched in tables or in the index: which it is, and that training does not care."""

import json

import numpy as np
import pytest

from kytolly.reformulation.device_env import QueryEnvironment
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.prepare import Phases, SearchSide
from kytolly.reformulation.reformulator import Reformulator
from kytolly.reformulation.search import searched
from kytolly.reformulation.train import train
from tests.retrieval.tiny_collection import write_collection
from tests.test_reformulation import make_options


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("data") / "tiny")


def chosen(collection, **training):
    side = SearchSide.prepared(make_options(collection, **training), ("train", "dev"), Phases())
    judged = [query for query in side.queries("train") if len(query.relevant)]
    lines = []
    return searched(side, judged, side.queries("dev"), lines.append), len(judged), lines


def test_a_run_on_the_host_learns_what_helps(collection, tmp_path):
    options = make_options(collection, search="host", max_pool_documents=64)
    summary = train(options, log_dir=tmp_path / "run", test=True)
    assert summary["loop"] == "host" and summary["queries"]["train_too_wide"] == 0
    assert summary["dev_gain"]["kept"] > 0.02
    assert summary["dev_gain"]["kept"] == pytest.approx(summary["evaluation"]["return_mean"])
    assert summary["test"]["ndcg@10"]["difference"] > 0.02
    search = summary["search"]
    assert search["where"] == "host" and search["hits"] > search["misses"] > 0
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == summary
    assert Reformulator.load(tmp_path / "run").reformulate("key12 noise1").added


def test_before_ppo_both_see_the_same(collection):
    (device, *_), (host, *_) = (chosen(collection, search=where) for where in ("device", "host"))
    assert isinstance(device.dev, QueryEnvironment) and isinstance(host.dev, HostQueries)
    rows = np.arange(device.dev.queries, dtype=np.int32)
    theirs, ours = (world.observe(world.begin(rows)) for world in (device.dev, host.dev))
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)


def test_auto_takes_the_host_where_tables_are_too_large(collection, monkeypatch):
    found, judged, lines = chosen(collection)
    assert isinstance(found.dev, QueryEnvironment) and found.too_wide == 0 and not lines
    # A mebibyte is the least that can be set; pools that claim to be large exceed it.
    found, _, lines = chosen(collection, max_table_mebibytes=1)
    assert isinstance(found.dev, QueryEnvironment)
    from kytolly.reformulation import table as tables

    real = tables.make_pool

    def wide(query, index, settings):
        pool = real(query, index, settings)
        return pool._replace(columns=np.zeros((64, 64, 64), np.float32))

    monkeypatch.setattr(tables, "make_pool", wide)
    found, judged, lines = chosen(collection, max_table_mebibytes=1)
    assert isinstance(found.dev, HostQueries) and isinstance(found.table, HostQueries)
    assert found.table.queries == judged and found.too_wide == 0
    assert lines == [f"episodes search on the host: 1 of {judged} queries take 1,048,832 bytes"]


def test_auto_takes_the_host_where_most_queries_would_be_left_out(collection, monkeypatch):
    from kytolly.reformulation import table as tables

    real = tables.make_pool

    def wide(query, index, settings):
        pool = real(query, index, settings)
        return pool._replace(base=np.zeros((3, 64), np.float32)) if query.number % 3 else pool

    monkeypatch.setattr(tables, "make_pool", wide)
    found, judged, lines = chosen(collection, max_pool_documents=128)
    assert isinstance(found.table, HostQueries) and found.table.queries == judged
    assert "training queries have more than 128 documents" in lines[0]
    with pytest.raises(ValueError, match="raise max_pool_documents, or set search: host"):
        monkeypatch.setattr(
            tables, "make_pool", lambda *args: real(*args)._replace(base=np.zeros((3, 64)))
        )
        chosen(collection, max_pool_documents=128, search="device")
