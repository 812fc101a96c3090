"""A collection, its index and its embeddings: everything that is known before learning begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from kytolly.machine.memory import check_memory
from kytolly.reformulation.candidates import SkippedQuery, mine, with_judgments
from kytolly.reformulation.options import ReformulationOptions, RetrievalOptions
from kytolly.reformulation.phases import Phases, TimedEncoder
from kytolly.reformulation.query import EpisodeRules, MiningRules, Query
from kytolly.retrieval.bm25 import EPSILON, BM25Index
from kytolly.retrieval.collection import Collection
from kytolly.retrieval.corpus import load_collection
from kytolly.retrieval.embedding import EmbeddingCache, make_encoder
from kytolly.retrieval.tokens import EnglishTokenizer


@dataclasses.dataclass(frozen=True)
class SearchSide:
    """Everything about a collection that is known before learning begins.

    Attributes:
        options: What was asked for.
        collection: Documents, queries and the judgments of some splits.
        index: The collection's documents.
        cache: Embeddings of terms and queries.
        phases: Seconds of the parts of the run.
        skipped: Split -> its queries that cannot be reformulated; filled in by `queries`.
    """

    options: ReformulationOptions
    collection: Collection
    index: BM25Index
    cache: EmbeddingCache
    phases: Phases
    skipped: dict[str, list[SkippedQuery]] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(
        cls,
        options: ReformulationOptions,
        splits: Sequence[str],
        phases: Phases | None = None,
        saved_index: Path | None = None,
    ) -> SearchSide:
        """Read and index a collection.

        Args:
            options: The collection, and how it is searched.
            splits: Splits whose judgments are read; the files of other splits are not opened.
            phases: Receives the time.
            saved_index: A file that `BM25Index.save` wrote. It is used if it is an index of these
                documents with these options; else the documents are indexed again.
        """
        phases, retrieval = phases or Phases(), options.retrieval
        with phases.measure("reading"):
            collection = load_collection(options.collection, splits)
        with phases.measure("indexing"):
            index = load_index(saved_index, collection, retrieval)
            if index is None:
                index = BM25Index(collection.texts, EnglishTokenizer(), retrieval.k1, retrieval.b)
        with phases.measure("embedding"):
            encoder = make_encoder(retrieval.encoder, retrieval.dimension)
            cache = EmbeddingCache(TimedEncoder(encoder, phases), retrieval.cache_entries)
        return cls(options, collection, index, cache, phases)

    @property
    def episode(self) -> EpisodeRules:
        """What an episode may do."""
        retrieval = self.options.retrieval
        return EpisodeRules(
            retrieval.metric, retrieval.max_terms, retrieval.candidates, retrieval.weight
        )

    @property
    def mining(self) -> MiningRules:
        """How candidates are mined."""
        retrieval = self.options.retrieval
        return MiningRules(
            retrieval.feedback_documents, retrieval.candidates, weight=retrieval.weight
        )

    def queries(self, split: str) -> list[Query]:
        """A split's queries with their candidates and judgments."""
        skipped = self.skipped[split] = []
        queries = self.mine(self.collection, self.collection.split(split), skipped)
        return with_judgments(queries, self.collection, split)

    def mine(
        self, collection: Collection, numbers: Sequence[int], skipped: list[SkippedQuery]
    ) -> list[Query]:
        """Queries with their candidates.

        Args:
            collection: A collection with the same documents.
            numbers: Places of the queries in it.
            skipped: Receives the queries that are left out, with the reason.

        Raises:
            ValueError: Candidates and feedback documents would take more memory than is free.
        """
        check_mining_memory(len(numbers), self.index, self.mining)
        workers = self.options.retrieval.workers
        with self.phases.measure("mining"):
            return mine(collection, numbers, self.index, self.cache, self.mining, workers, skipped)


def check_mining_memory(queries: int, index: BM25Index, rules: MiningRules) -> None:
    """Refuse rules with which mining, and the table of what it finds, exhaust the memory."""
    documents = min(rules.feedback_documents, index.documents)
    terms = min(len(index.terms), documents * int(index.lengths.max()))
    cosines = 2 * 4 * queries * rules.candidates**2  # of each query, and padded in a table
    check_memory(
        cosines + 3 * 8 * documents * terms,
        f"{queries:,} queries with candidates: {rules.candidates:,} and feedback_documents: "
        f"{rules.feedback_documents:,}",
        "lower candidates or feedback_documents",
    )


def load_index(
    path: Path | None, collection: Collection, retrieval: RetrievalOptions
) -> BM25Index | None:
    """The index in a file; None if there is no file, or one of other documents or options."""
    if path is None:
        return None
    parameters = (retrieval.k1, retrieval.b, EPSILON)
    try:
        return BM25Index.load(path, collection.texts, EnglishTokenizer(), parameters)
    except ValueError:
        return None
