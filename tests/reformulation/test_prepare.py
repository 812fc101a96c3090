"""Where episodes search: in tables or in the index; training learns with both."""

import numpy as np
import pytest

from kytolly.reformulation import pool as pools
from kytolly.reformulation import prepare as preparing
from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.search import SearchSide
from tests.reformulation.tiny_collection import make_options


def playable(collection, **training):
    """Training and dev queries, those too wide, all usable training queries, and what is said."""
    side = SearchSide.load(make_options(collection, **training), ("train", "dev"))
    usable, lines = [query for query in side.queries("train") if len(query.relevant)], []
    found = preparing.make_playable(side, usable, side.queries("dev"), lines.append)
    return *found, len(usable), lines


def test_before_ppo_both_see_the_same(collection):
    (_, device, *_), (_, host, *_) = (
        playable(collection, search=where) for where in ("device", "host")
    )
    assert isinstance(device, DeviceQueries) and isinstance(host, HostQueries)
    rows = np.arange(device.num_queries, dtype=np.int32)
    theirs, ours = (queries.observe(queries.begin(rows)) for queries in (device, host))
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)


def test_auto_takes_the_host_where_tables_are_too_large(collection, monkeypatch):
    _, dev, too_wide, _, lines = playable(collection)
    assert isinstance(dev, DeviceQueries) and too_wide == 0 and not lines
    # A mebibyte is the least that can be set; pools that claim to be large exceed it.
    assert isinstance(playable(collection, max_table_mebibytes=1)[1], DeviceQueries)
    real = pools.make_pool

    def wide(query, index, rules):
        pool = real(query, index, rules)
        return pool._replace(columns=np.zeros((64, 64, 64), np.float32))

    monkeypatch.setattr(pools, "make_pool", wide)
    train, dev, too_wide, usable, lines = playable(collection, max_table_mebibytes=1)
    assert isinstance(dev, HostQueries) and isinstance(train, HostQueries)
    assert train.num_queries == usable and too_wide == 0
    assert lines == [f"episodes search on the host: 1 of {usable} queries take 1,048,832 bytes"]


def test_auto_takes_the_host_where_most_queries_would_be_left_out(collection, monkeypatch):
    real = pools.make_pool

    def wide(query, index, rules):
        pool = real(query, index, rules)
        return pool._replace(base=np.zeros((3, 64), np.float32)) if query.number % 3 else pool

    monkeypatch.setattr(pools, "make_pool", wide)
    train, _, _, usable, lines = playable(collection, max_pool_documents=128)
    assert isinstance(train, HostQueries) and train.num_queries == usable
    assert "training queries have more than 128 documents" in lines[0]
    with pytest.raises(ValueError, match="raise max_pool_documents, or set search: host"):
        monkeypatch.setattr(
            pools, "make_pool", lambda *args: real(*args)._replace(base=np.zeros((3, 64)))
        )
        playable(collection, max_pool_documents=128, search="device")


def test_wide_queries_are_left_out_of_training_alone(collection):
    lines = []
    preparation = preparing.prepare(make_options(collection, max_pool_documents=64), lines.append)
    too_wide = preparation.counts["train_too_wide"]
    assert too_wide + preparation.train.num_queries == 24
    assert preparation.dev.num_queries == 9
    assert f"{too_wide} with more than 64 documents" in "\n".join(lines)
