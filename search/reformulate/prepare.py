"""From a collection to queries that training can play."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from kytolly.machine.memory import check_memory
from kytolly.search.index.embedding import Encoder
from kytolly.search.index.synthetic import synthetic_collection
from kytolly.search.reformulate.candidates import CANDIDATE_FEATURES, skip_report
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.phases import Phases
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import QueryTable, make_table, row_bytes

Say = Callable[[str], None]
LEARNING = ("train", "dev")  # the splits that training uses


@dataclasses.dataclass
class Preparation:
    """Everything that training needs.

    Attributes:
        context: Collection, index and embeddings.
        train: Training queries; None where there are none.
        dev: Dev queries that can be reformulated and have a relevant document, in order; None
            where there are none.
        synthetic: Parts of documents as queries; None where none were asked for.
        counts: Numbers of queries: in all, and left out for each reason.
    """

    context: SearchContext
    train: QueryTable | None
    dev: QueryTable | None
    synthetic: QueryTable | None
    counts: dict[str, int]


def prepare(
    options: ReformulationOptions,
    say: Say,
    splits: Sequence[str] = LEARNING,
    encoder: Encoder | None = None,
) -> Preparation:
    """Read and index a collection, mine candidates, and make tables.

    Only the judgments of the train and dev splits are used.

    Args:
        options: The collection, and how it is searched.
        say: Receives the lines of the progress display.
        splits: The splits to read: what is wrong with the file of one is said here.
        encoder: An encoder in place of the one that the options name.

    Raises:
        ValueError: A file is malformed.
    """
    context = SearchContext.load(options, splits, Phases(say), encoder=encoder)
    counts: dict[str, int] = {}
    tables = {split: _split_table(context, split, counts, say) for split in LEARNING}
    synthetic = None
    if options.training.synthetic_queries:
        asked = options.training.synthetic_queries
        texts = synthetic_collection(context.collection, asked, options.seed)
        synthetic = _split_table(context.with_texts(texts), "train", {}, lambda line: None)
        found = 0 if synthetic is None else len(synthetic.number)
        say(f"synthetic queries: {found} of {asked}")
    return Preparation(context, tables["train"], tables["dev"], synthetic, counts)


def _split_table(
    context: SearchContext, split: str, counts: dict[str, int], say: Say
) -> QueryTable | None:
    if split not in context.collection.judgments:
        counts |= {split: 0, f"{split}_skipped": 0, f"{split}_without_relevant": 0}
        say(f"{split} queries: none, the collection has no judgments of this split")
        return None
    numbers = context.collection.split(split)
    queries = context.queries(split, context.options.training.max_queries)
    usable = [query for query in queries if query.has_relevant]
    skipped = context.skipped[split]
    drawn = len(queries) + len(skipped)
    if drawn < len(numbers):
        say(f"{split} queries: {drawn:,} of {len(numbers):,} are drawn, which max_queries allows")
    counts |= {
        split: len(numbers),
        f"{split}_skipped": len(skipped),
        f"{split}_without_relevant": len(queries) - len(usable),
    }
    say(
        f"{split} queries: {len(usable)} of {drawn:,}; {skip_report(skipped)}; "
        f"{len(queries) - len(usable)} without a relevant document"
    )
    if not usable:
        return None
    size = row_bytes(context.rules, len(CANDIDATE_FEATURES))
    check_memory(
        len(usable) * size,
        f"tables of {len(usable):,} queries with candidates: {context.rules.max_candidates:,} and "
        f"pool_documents: {context.rules.pool_documents:,}",
        "lower max_queries, candidates or pool_documents",
    )
    with context.phases.measure("tables"):
        return make_table(usable, context.index, context.documents, context.rules)
