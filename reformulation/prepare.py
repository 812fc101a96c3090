"""From a collection to queries that training can play."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from kytolly.reformulation.candidates import CANDIDATE_FEATURES, skip_report
from kytolly.reformulation.options import ReformulationOptions
from kytolly.reformulation.phases import Phases
from kytolly.reformulation.query import Query
from kytolly.reformulation.search import SearchSide
from kytolly.reformulation.table import QueryTable, make_table, row_bytes

Say = Callable[[str], None]
LEARNING = ("train", "dev")  # the splits that training uses


@dataclasses.dataclass
class Preparation:
    """Everything that training needs.

    Attributes:
        side: Collection, index and embeddings.
        train: Training queries; None where there are none.
        dev: Dev queries that can be reformulated and have a relevant document, in order; None
            where there are none.
        counts: Numbers of queries: in all, and left out for each reason.
    """

    side: SearchSide
    train: QueryTable | None
    dev: QueryTable | None
    counts: dict[str, int]


def prepare(
    options: ReformulationOptions, say: Say, splits: Sequence[str] = LEARNING
) -> Preparation:
    """Read and index a collection, mine candidates, and make tables.

    Only the judgments of the train and dev splits are used.

    Args:
        options: The collection, and how it is searched.
        say: Receives the lines of the progress display.
        splits: The splits to read: what is wrong with the file of one is said here.

    Raises:
        ValueError: A file is malformed.
    """
    side = SearchSide.load(options, splits, Phases(say))
    counts: dict[str, int] = {}
    tables = {split: _split_table(side, split, counts, say) for split in LEARNING}
    return Preparation(side, tables["train"], tables["dev"], counts)


def _split_table(
    side: SearchSide, split: str, counts: dict[str, int], say: Say
) -> QueryTable | None:
    if split not in side.collection.judgments:
        counts |= {split: 0, f"{split}_skipped": 0, f"{split}_without_relevant": 0}
        say(f"{split} queries: none, the collection has no judgments of this split")
        return None
    numbers = side.collection.split(split)
    queries = side.queries(split)
    usable = [query for query in queries if query.has_relevant]
    skipped = side.skipped[split]
    counts |= {
        split: len(numbers),
        f"{split}_skipped": len(skipped),
        f"{split}_without_relevant": len(queries) - len(usable),
    }
    say(
        f"{split} queries: {len(usable)} of {len(numbers)}; {skip_report(skipped)}; "
        f"{len(queries) - len(usable)} without a relevant document"
    )
    if not usable:
        return None
    kept = drawn_queries(usable, side)
    if len(kept) < len(usable):
        counts[f"{split}_too_many"] = len(usable) - len(kept)
        say(
            f"{split} queries: {len(kept)} are drawn, as many as max_table_mebibytes "
            f"({side.options.training.max_table_mebibytes}) holds"
        )
    with side.phases.measure("tables"):
        return make_table(kept, side.index, side.documents, side.rules)


def drawn_queries(queries: Sequence[Query], side: SearchSide) -> list[Query]:
    """The queries, or as many as the largest table holds, drawn by the run's seed, in order."""
    size = row_bytes(side.rules, len(CANDIDATE_FEATURES))
    most = max(1, side.options.training.max_table_mebibytes * 2**20 // size)
    if len(queries) <= most:
        return list(queries)
    rng = np.random.default_rng(side.options.seed)
    return [queries[place] for place in np.sort(rng.permutation(len(queries))[:most])]
