"""From a collection to queries that episodes can be played with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from kytolly.reformulation.candidates import skip_report
from kytolly.reformulation.device_env import DeviceQueries
from kytolly.reformulation.episode import Queries
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.options import ReformulationOptions
from kytolly.reformulation.phases import Phases
from kytolly.reformulation.pool import TableTooLarge, make_pools
from kytolly.reformulation.query import Query
from kytolly.reformulation.search import SearchSide
from kytolly.reformulation.table import make_table

Say = Callable[[str], None]
LEARNING = ("train", "dev")  # the splits that training uses


@dataclasses.dataclass
class Preparation:
    """Everything that training needs.

    Attributes:
        side: Collection, index and embeddings.
        train: Training queries.
        dev: All dev queries that can be reformulated, in order.
        counts: Numbers of queries: in all, and left out for each reason.
    """

    side: SearchSide
    train: Queries
    dev: Queries
    counts: dict[str, int]


def prepare(
    options: ReformulationOptions, say: Say, splits: Sequence[str] = LEARNING
) -> Preparation:
    """Read and index a collection, mine candidates, and make queries that can be played.

    Only the judgments of the train and dev splits are used.

    Args:
        options: The collection, and how it is searched.
        say: Receives the lines of the progress display.
        splits: The splits to read: what is wrong with the file of one is said here.

    Raises:
        ValueError: A split has no query that can be used, or a file is malformed.
    """
    side = SearchSide.load(options, splits, Phases(say))
    train_queries, dev_queries = side.queries("train"), side.queries("dev")
    usable = [query for query in train_queries if query.has_relevant]
    judged = [query for query in dev_queries if query.has_relevant]
    for split, found in (("train", usable), ("dev", judged)):
        if not found:
            raise ValueError(
                f"no query of the {split} split can be used ({skip_report(side.skipped[split])}): "
                "training needs queries with a candidate term and a relevant document."
            )
    counts = {
        "train": len(side.collection.split("train")),
        "dev": len(side.collection.split("dev")),
        "train_skipped": len(side.skipped["train"]),
        "dev_skipped": len(side.skipped["dev"]),
        "train_without_relevant": len(train_queries) - len(usable),
    }
    train, dev, counts["train_too_wide"] = make_playable(side, usable, dev_queries, say)
    say(
        f"training queries: {train.num_queries} of {counts['train']}; "
        f"{skip_report(side.skipped['train'])}; {counts['train_without_relevant']} without a "
        f"relevant document, {counts['train_too_wide']} with more than "
        f"{options.training.max_pool_documents} documents that matter"
    )
    say(f"dev queries: {len(dev_queries)} of {counts['dev']}; {skip_report(side.skipped['dev'])}")
    return Preparation(side, train, dev, counts)


def make_playable(
    side: SearchSide,
    train: Sequence[Query],
    dev: Sequence[Query],
    say: Say = lambda line: None,
) -> tuple[Queries, Queries, int]:
    """Queries that episodes can be played with: in tables on the device, or on the host.

    The option `search` decides. With `auto` it is the host if the tables would take more than
    `max_table_mebibytes`, or if they would leave out more than half of the training queries.

    Args:
        side: The index, and the options.
        train: Training queries.
        dev: Dev queries.
        say: Receives a line if `auto` chooses the host.

    Returns:
        Training queries, dev queries in order, and the number of training queries left out because
        too many documents matter to them.

    Raises:
        ValueError: With `device`, every training query is left out.
    """
    training = side.options.training
    with side.phases.measure("tables"):
        if training.search != "host":
            try:
                return _make_device_queries(side, train, dev)
            except TableTooLarge as error:
                if training.search == "device":
                    raise ValueError(
                        f"{error}: raise max_pool_documents, or set search: host."
                    ) from None
                say(f"episodes search on the host: {error}")
        return (
            HostQueries(train, side.index, side.episode),
            HostQueries(dev, side.index, side.episode, in_order=True),
            0,
        )


def _make_device_queries(
    side: SearchSide, train: Sequence[Query], dev: Sequence[Query]
) -> tuple[Queries, Queries, int]:
    training, rules = side.options.training, side.episode
    auto, widest = training.search == "auto", training.max_pool_documents
    most = training.max_table_mebibytes * 2**20 if auto else None
    kept, pools = make_pools(train, side.index, rules, widest, most)
    too_wide = len(train) - len(kept)
    if not kept or (auto and too_wide > len(kept)):
        raise TableTooLarge(
            f"{too_wide} of {len(train)} training queries have more than {widest} documents that "
            "matter"
        )
    table = make_table([train[row] for row in kept], side.index, rules, pools)
    del pools
    _, pools = make_pools(dev, side.index, rules, None, most and max(most - table.bytes, 1))
    dev_table = make_table(dev, side.index, rules, pools)
    return DeviceQueries(table), DeviceQueries(dev_table, in_order=True), too_wide
