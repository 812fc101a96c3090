"""Where the episodes of query reformulation are searched: in tables, or in the index itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kytolly.reformulation.device_env import QueryEnvironment
from kytolly.reformulation.host_env import HostQueries, QueryVectorEnv
from kytolly.reformulation.prepare import SearchSide
from kytolly.reformulation.table import (
    Query,
    QueryTable,
    TableTooLarge,
    make_pools,
    make_table,
    select,
)

Table = QueryTable | HostQueries
World = QueryEnvironment | HostQueries


class Searched(NamedTuple):
    """Queries that episodes can be played with.

    Attributes:
        table: Training queries.
        dev: Dev queries, in order.
        too_wide: Training queries that are left out.
    """

    table: Table
    dev: World
    too_wide: int


def searched(
    side: SearchSide,
    train: Sequence[Query],
    dev: Sequence[Query],
    say: Callable[[str], None] = lambda line: None,
) -> Searched:
    """Queries in tables for the device, or to be searched on the host, as the options say.

    With `auto` that is the host where the tables would take more than `max_table_mebibytes`, or
    where more than half of the training queries would be left out of them.

    Raises:
        ValueError: With `device`, all training queries are too wide.
    """
    training = side.options.training
    with side.phases.measured("tables"):
        if training.search != "host":
            try:
                return _in_tables(side, train, dev)
            except TableTooLarge as error:
                if training.search == "device":
                    raise ValueError(
                        f"{error}: raise max_pool_documents, or set search: host."
                    ) from None
                say(f"episodes search on the host: {error}")
        host = [HostQueries(queries, side.index, side.episode) for queries in (train, dev)]
    return Searched(host[0], host[1], 0)


def _in_tables(side: SearchSide, train: Sequence[Query], dev: Sequence[Query]) -> Searched:
    training, settings = side.options.training, side.episode
    auto, widest = training.search == "auto", training.max_pool_documents
    most = training.max_table_mebibytes * 2**20 if auto else None
    kept, pools = make_pools(train, side.index, settings, widest, most)
    too_wide = len(train) - len(kept)
    if not kept or (auto and too_wide > len(kept)):
        raise TableTooLarge(
            f"{too_wide} of {len(train)} training queries have more than {widest} documents that "
            "matter"
        )
    table = make_table([train[row] for row in kept], side.index, settings, pools)
    del pools
    _, pools = make_pools(dev, side.index, settings, None, most and max(most - table.bytes, 1))
    dev_table = make_table(dev, side.index, settings, pools)
    return Searched(table, QueryEnvironment(dev_table, in_order=True), too_wide)


def environment(table: Table) -> World:
    """Where episodes of random queries are played."""
    return table if isinstance(table, HostQueries) else QueryEnvironment(table)


def some_of(table: Table, rows: np.ndarray) -> Table:
    """Some of the queries, in the order of `rows`."""
    return table.selected(rows) if isinstance(table, HostQueries) else select(table, rows)


def for_trainer(
    world: World, copies: int, in_order: bool = False
) -> QueryEnvironment | Callable[[], QueryVectorEnv]:
    """What `Trainer.train_ppo` takes: the device's environment, or what makes the host's."""
    if isinstance(world, HostQueries):
        return lambda: QueryVectorEnv(world, copies, in_order)
    return world


def search_figures(world: World) -> dict[str, Any]:
    """Where episodes were searched, and on the host how many searches were remembered."""
    if not isinstance(world, HostQueries):
        return {"where": "device"}
    cache = world.search
    figures = {"hits": cache.hits, "misses": cache.misses, "hit_rate": cache.hit_rate}
    return {"where": "host", **figures}
