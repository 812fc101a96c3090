"""The whole search: BM25, cosines or an agent's queries, and a re-ranker on what they find."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kytolly.search.index.collection import Collection
from kytolly.search.index.corpus import load_collection, read_queries
from kytolly.search.index.fusion import NONE, FirstSearch, FusedSearch
from kytolly.search.index.tokens import AUTO
from kytolly.search.index.trained_documents import Overlap
from kytolly.search.index.trec import check_replaceable, write_ranking
from kytolly.search.reformulate.reformulator import OPTIONS_FILE, Reformulator
from kytolly.search.reformulate.result import Hit, Reformulation
from kytolly.search.text.language import tokenizer_of
from kytolly.search.text.ranker import RANKER_FILE, Ranker

PRETRAINED = "pretrained"  # in place of an agent's run


class AgentSearch:
    """The search for queries that an agent reformulates.

    Args:
        reformulator: Reformulates and searches.
    """

    name = "reformulated"

    def __init__(self, reformulator: Reformulator):
        self.reformulator = reformulator
        choices, context = reformulator.choices, reformulator.context
        self.index = context.index
        parts: list[Any] = [
            np.asarray(part).tobytes() for part in keras.tree.flatten(vars(reformulator.scorer))
        ]
        parts += [part.tobytes() for part in reformulator.gains or ()]
        how = reformulator.fusion, choices.at(reformulator.fusion), context.mining, context.rules
        plain = FusedSearch(context.index, reformulator.fusion, context.documents, context.cache)
        digest = hashlib.sha256(b"".join([*parts, repr(how).encode()])).hexdigest()
        self.identity = f"agent {digest} with {plain.identity}"

    def search(
        self, collection: Collection, queries: Sequence[int], top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best documents for queries, as `FirstSearch` says."""
        documents = np.full((len(queries), top), NONE, np.int32)
        scores = np.zeros((len(queries), top), np.float32)
        plans = self.reformulator.plans(collection, queries)
        _, rankings = self.reformulator.rankings(collection, queries, plans, top)
        for row, hits in enumerate(rankings):
            documents[row, : len(hits)] = [collection.doc_index[hit.doc_id] for hit in hits]
            scores[row, : len(hits)] = [hit.score for hit in hits]
        return documents, scores


@dataclasses.dataclass(frozen=True)
class ChainResult:
    """The documents that each search of a chain finds for a query.

    Attributes:
        query_id: Its id, or "" for one that was typed.
        text: The query as it was typed.
        columns: Name of a search -> its best documents, each search after the one it starts from.
        reformulation: The agent's changes; None without an agent.
        fusion: Weight of the cosines in the searches after BM25.
    """

    query_id: str
    text: str
    columns: dict[str, tuple[Hit, ...]]
    reformulation: Reformulation | None
    fusion: float = 0.0

    @property
    def cosines_alone(self) -> bool:
        """True where no document has a word of the query, and cosines find some."""
        return not self.columns["BM25"] and any(self.columns.values())

    def as_dict(self) -> dict[str, Any]:
        """The object that `kytolly search --json` prints."""
        reformulation = self.reformulation
        result: dict[str, Any] = {"query": self.text, "added": [], "lowered": [], "reason": None}
        if reformulation is not None:
            whole = reformulation.as_dict()
            result |= {name: whole[name] for name in ("added", "lowered", "reason")}
        columns = {name: [hit._asdict() for hit in hits] for name, hits in self.columns.items()}
        return {**result, "columns": columns}


class SearchChain:
    """BM25, a first search, and a re-ranker on its best documents.

    Args:
        collection: The documents.
        first: Finds the documents.
        ranker: Ranks them anew; None: nothing does. Where its weight was chosen for other documents
            (more than a tenth of them) or another first search, a warning says that it is not used.
    """

    def __init__(self, collection: Collection, first: FirstSearch, ranker: Ranker | None = None):
        self.collection, self.first, self.ranker = collection, first, ranker
        self.agent = first.reformulator if isinstance(first, AgentSearch) else None
        self.fusion = first.fusion if isinstance(first, FusedSearch) else 0.0
        if self.agent is not None:
            self.fusion = self.agent.fusion
        self.bm25 = FusedSearch(first.index)
        self.weight = ranker.weight if ranker else 0.0
        overlap = overlap_of_grown(ranker, first, collection) if ranker else None
        if overlap is not None and overlap.is_same_collection:
            if overlap.new or overlap.gone:
                warnings.warn(overlap.text("the re-ranker"), stacklevel=2)
        elif ranker and ranker.search_identity != first.identity:
            self.weight = 0.0
            warnings.warn(
                "the re-ranker was trained with other documents or another first search than "
                f"{first.name} here: nothing says that it helps, so it is not used.",
                stacklevel=2,
            )

    @classmethod
    def load(
        cls,
        run: str,
        collection: str | None = None,
        fusion: float | None = None,
        ranker: str | None = None,
        language: str | None = None,
    ) -> SearchChain:
        """The chain of an agent's run, perhaps with a re-ranker's; or of a re-ranker's run alone.

        Args:
            run: Folder of an agent's run; "pretrained" for the agent of the package; or folder of a
                re-ranker's run, whose first search is used.
            collection: Other documents than those of the run.
            fusion: Weight of the cosines beside BM25; None: that of the run.
            ranker: Folder of a re-ranker's run.
            language: Language of the documents, or "auto"; None: that of the run, or for
                "pretrained" what is detected.

        Raises:
            ValueError: A folder is no such run, or the collection cannot be read.
        """
        loaded = None if ranker is None else Ranker.load(ranker)
        if os.path.isfile(Path(run) / RANKER_FILE) and run != PRETRAINED:
            if loaded is not None:
                raise ValueError(
                    f"{run} is a re-ranker's run, and --ranker gives another one; expected one of "
                    "them: leave --ranker out."
                )
            loaded = Ranker.load(run)
            collection = collection or loaded.collection
            if loaded.cfg.agent is None:
                documents, cfg = load_collection(str(collection), ()), loaded.cfg
                weight = float(cfg.first_search == "fused") if fusion is None else fusion
                tokenizer = tokenizer_of(language or cfg.language, documents.texts)
                first = FusedSearch.of_texts(documents.texts, cfg.k1, cfg.b, weight, tokenizer)
                return cls(documents, first, loaded)
            run = loaded.cfg.agent
        agent = load_agent(run, collection, fusion, language)
        return cls(agent.context.collection, AgentSearch(agent), loaded)

    def search(
        self, queries: Mapping[str, str] | Sequence[str], top: int = 10
    ) -> list[ChainResult]:
        """The documents that each search finds.

        Args:
            queries: Texts, or id -> text.
            top: Documents of each search.
        """
        texts = list(queries.values()) if isinstance(queries, Mapping) else list(queries)
        ids = tuple(queries) if isinstance(queries, Mapping) else ("",) * len(texts)
        asked, numbers = self.collection.with_queries(ids, texts), range(len(texts))
        wide = max(top, self.ranker.cfg.depth) if self.ranker else top
        reformulations = (
            self.agent.reformulate_all(queries, wide) if self.agent else [None] * len(texts)
        )
        plain = self.hits(self.bm25, asked, numbers, top)
        if self.agent:
            first_hits = [
                reformulation.after for reformulation in reformulations if reformulation is not None
            ]
        else:
            first_hits = self.hits(self.first, asked, numbers, wide)
        results = []
        for number in numbers:
            columns = [plain[number]]
            if self.first.name != "BM25":
                columns.append(first_hits[number][:top])
            if self.ranker:
                columns.append(self.re_ranked(texts[number], first_hits[number])[:top])
            named = dict(zip(self.columns, columns, strict=True))
            found = ids[number], texts[number], named, reformulations[number]
            results.append(ChainResult(*found, self.fusion))
        return results

    @property
    def columns(self) -> list[str]:
        """Names of the searches, each of which starts from the one before."""
        second = [] if self.first.name == "BM25" else [self.first.name]
        return ["BM25", *second, *(["re-ranked"] if self.ranker else [])]

    def hits(
        self, search: FirstSearch, collection: Collection, queries: Sequence[int], top: int
    ) -> list[tuple[Hit, ...]]:
        """[Q] the best documents of one of the searches."""
        documents, scores = search.search(collection, queries, top)
        return [
            tuple(
                Hit(collection.doc_ids[int(doc)], score)
                for doc, score in zip(row, values, strict=True)
                if doc != NONE
            )
            for row, values in zip(documents.tolist(), scores.tolist(), strict=True)
        ]

    def re_ranked(self, text: str, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """The documents of the first search in their new order; those below the depth stay."""
        if self.ranker is None or not self.weight or not hits:
            return tuple(hits)
        best = hits[: self.ranker.cfg.depth]
        documents = [self.collection.doc_index[hit.doc_id] for hit in best]
        texts = [self.collection.texts[document] for document in documents]
        order = self.ranker.rank(text, texts, [hit.score for hit in best])
        re_ranked = [Hit(best[ranked.place].doc_id, ranked.score) for ranked in order]
        unit = max(hits[0].score, 1e-9)
        return (*re_ranked, *(Hit(hit.doc_id, hit.score / unit) for hit in hits[len(best) :]))


def overlap_of_grown(ranker: Ranker, first: FirstSearch, collection: Collection) -> Overlap | None:
    """What a re-ranker's documents have in common with others; None: not its search, or the same.

    Its search is one whose identity differs by the digest of the documents alone.
    """
    documents, digest = ranker.documents, first.index.digest
    if documents is None or documents.digest == digest:
        return None
    if ranker.search_identity.replace(documents.digest, digest) != first.identity:
        return None
    return documents.overlap(collection.texts)


def search_file(
    chain: SearchChain, queries: str | Path, run_file: str | Path, top: int
) -> dict[str, Any]:
    """Search for a file of queries, and write a TREC run for each of the chain's searches.

    Args:
        chain: Searches.
        queries: JSON lines with `_id` and `text`.
        run_file: Path of the runs; "a.run" becomes "a.BM25.run" and so on.
        top: Documents of each query.

    Returns:
        Numbers of queries and of those that find nothing, and the paths of the runs.

    Raises:
        ValueError: The queries cannot be read, or a run would replace a file that is no run.
    """
    path = Path(run_file)
    files = {name: path.with_name(f"{path.stem}.{name}{path.suffix}") for name in chain.columns}
    for file in files.values():
        check_replaceable(file, "--run-file")
    results = chain.search(read_queries(queries), top)
    for name, file in files.items():
        write_ranking({result.query_id: list(result.columns[name]) for result in results}, file)
    nothing = sum(not any(result.columns.values()) for result in results)
    written = {name: str(file) for name, file in files.items()}
    return {"queries": len(results), "without_a_document": nothing, "runs": written}


def load_agent(
    run: str,
    collection: str | Path | None = None,
    fusion: float | None = None,
    language: str | None = None,
) -> Reformulator:
    """The agent of a run, or "pretrained": that of the package, which needs a collection."""
    if run != PRETRAINED:
        if os.path.isdir(run) and not os.path.isfile(Path(run) / OPTIONS_FILE):
            raise ValueError(
                f"{run} has no {OPTIONS_FILE} and no {RANKER_FILE}, expected a run of "
                "train_optimized.py or of `kytolly train ranker`: give the folder that it printed."
            )
        return Reformulator.load(run, collection, fusion, language=language)
    if collection is None:
        raise ValueError(f"{PRETRAINED} needs a collection to search: give it.")
    return Reformulator.pretrained(collection, fusion, language or AUTO)
