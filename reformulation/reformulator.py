"""Using what was learnt: better queries from a trained run, without a judgement."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from kytolly.record.checkpoint import BEST
from kytolly.record.run_folder import RunFolder
from kytolly.reformulation.candidates import CANDIDATE_FEATURES, Skipped
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.options import read_options
from kytolly.reformulation.prepare import STOP, SearchSide, greedy_actions
from kytolly.reformulation.table import Query
from kytolly.retrieval.corpus import Collection, read_queries
from kytolly.retrieval.metrics import Run
from kytolly.retrieval.trec import write_run
from kytolly.trainer import load_network

OPTIONS_FILE = "reformulation.yaml"
INDEX_FILE = "index.npz"
TOGETHER = 256  # queries reformulated at once
NOTHING_HELPS = "the agent expects no candidate to help"
LUCENE_SYNTAX = re.compile(r'([+\-!(){}\[\]^"~*?:\\/&|<>=\s])')
LUCENE_WORDS = ("AND", "OR", "NOT", "TO")


class Hit(NamedTuple):
    """A document that was found.

    Attributes:
        doc_id: Its id in the collection.
        score: BM25's.
    """

    doc_id: str
    score: float


class AddedTerm(NamedTuple):
    """A term that the agent added.

    Attributes:
        term: As the index has it.
        surface: How it is most often written in the documents it was taken from.
        weight: Where a term of the query has 1.
        rank: Place among the candidates, from 1, as mining ordered them.
        features: Why it was a candidate: what the agent saw of it, by name.
    """

    term: str
    surface: str
    weight: float
    rank: int
    features: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Reformulation:
    """A query and what became of it.

    Attributes:
        query_id: Its id, or "" for one that was typed.
        text: As it was typed.
        added: Terms in the order in which they were added.
        weights: Term -> weight, the query's own terms first.
        lucene: The query in Lucene's syntax, with words as they are written: an analyser of
            Lucene's makes terms of them.
        before: The best documents for the query as it was typed.
        after: The best documents for the new one.
        reason: Why nothing was added; None where something was.
    """

    query_id: str
    text: str
    added: tuple[AddedTerm, ...]
    weights: dict[str, float]
    lucene: str
    before: tuple[Hit, ...]
    after: tuple[Hit, ...]
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What `kytolly reformulate --json` prints."""
        found = {name: value for name, value in vars(self).items() if name != "query_id"}
        found["query"] = found.pop("text")
        for name in ("added", "before", "after"):
            found[name] = [part._asdict() for part in found[name]]
        return found

    def lines(self) -> Iterator[str]:
        """The same for a reader."""
        yield f"Query: {self.text}"
        if self.reason is not None:
            yield f"Unchanged: {self.reason}."
        for term in self.added:
            yield f"  + {term.surface} ^{number(term.weight)}  ({because(term)})"
        terms = " ".join(f"{term}:{number(weight)}" for term, weight in self.weights.items())
        yield f"Weighted terms: {terms}"
        yield f"Lucene: {self.lucene}"
        places = {hit.doc_id: place for place, hit in enumerate(self.before, start=1)}
        yield f"Ranking after{'' if self.added else ' (as before)'}:"
        for place, hit in enumerate(self.after, start=1):
            was = f"was {places[hit.doc_id]}" if hit.doc_id in places else "new"
            yield f"{place:>4}. {hit.doc_id}  {hit.score:.3f}  ({was})"
        if not self.after:
            yield "      no document"


class Plan(NamedTuple):
    """What to search for in place of a query.

    Attributes:
        query: The query with its candidates; None where it has none.
        chosen: Candidates to add, by place.
        weights: Term -> weight.
        reason: Why nothing is added; None where something is.
    """

    query: Query | None
    chosen: list[int]
    weights: dict[str, float]
    reason: str | None


class Reformulator:
    """Adds terms to queries as a trained network chooses them.

    Args:
        side: The collection's documents and their index.
        network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
    """

    def __init__(self, side: SearchSide, network: keras.Model):
        self.side, self.network = side, network

    @classmethod
    def load(cls, run_dir: str | Path, collection: str | Path | None = None) -> Reformulator:
        """The reformulator that a run trained; no judgement is read.

        Args:
            run_dir: The run's folder.
            collection: Another collection than the one that the run was trained with.

        Raises:
            ValueError: The folder is no such run, or the collection cannot be read.
        """
        path = RunFolder.existing(run_dir).path / OPTIONS_FILE
        if not path.is_file():
            raise ValueError(
                f"{run_dir} has no {OPTIONS_FILE}, expected a run of train_optimized.py: give the "
                "folder that it printed."
            )
        options = read_options(path)
        if collection is not None:
            options = dataclasses.replace(options, collection=str(collection))
        network = load_network(Path(run_dir) / BEST)
        side = SearchSide.prepared(options, (), saved_index=Path(run_dir) / INDEX_FILE)
        return cls(side, network)

    def reformulate(self, text: str, top: int = 10) -> Reformulation:
        """A query that somebody typed.

        Args:
            text: The query.
            top: Documents of each ranking.
        """
        return self.reformulate_all({"": text}, top)[0]

    def reformulate_all(
        self, queries: Mapping[str, str] | Sequence[str], top: int = 10
    ) -> list[Reformulation]:
        """Many queries, together.

        Args:
            queries: Texts, or id -> text. A query that has the id and the text of a document does
                not find that document.
            top: Documents of each ranking.
        """
        collection = self._asking(queries)
        numbers = range(len(collection.queries))
        plans = self.plans(collection, numbers)
        before, after = self.rankings(collection, numbers, plans, top)
        made = []
        for query_id, text, plan, old, new in zip(
            collection.query_ids, collection.queries, plans, before, after, strict=True
        ):
            added = [self._added(plan.query, place) for place in plan.chosen if plan.query]
            made.append(
                Reformulation(
                    query_id=query_id,
                    text=text,
                    added=tuple(added),
                    weights=plan.weights,
                    lucene=self._lucene(text, added),
                    before=old,
                    after=new,
                    reason=plan.reason,
                )
            )
        return made

    def plans(self, collection: Collection, numbers: Sequence[int]) -> list[Plan]:
        """What to search for in place of queries of a collection with the same documents."""
        skipped: list[Skipped] = []
        mined = self.side.mined(collection, numbers, skipped)
        found: dict[int, Plan] = {}
        for first in range(0, len(mined), TOGETHER):
            queries = mined[first : first + TOGETHER]
            for query, actions in zip(queries, self._actions(queries), strict=True):
                chosen = [int(place) for place in actions if place != STOP]
                extra = {query.candidates[place]: self.side.episode.weight for place in chosen}
                reason = None if chosen else NOTHING_HELPS
                found[query.number] = Plan(query, chosen, {**query.weights, **extra}, reason)
        for one in skipped:
            own = self.side.index.query_weights(collection.queries[one.number])
            found[one.number] = Plan(None, [], own, one.reason)
        return [found[number] for number in numbers]

    def rankings(
        self, collection: Collection, numbers: Sequence[int], plans: Sequence[Plan], top: int
    ) -> tuple[list[tuple[Hit, ...]], list[tuple[Hit, ...]]]:
        """[Q] best documents for the queries as they were typed, and as they are planned."""
        index = self.side.index
        typed = [index.query_weights(collection.queries[number]) for number in numbers]
        wanted = (typed, [plan.weights for plan in plans])
        result = []
        for weights in wanted:
            # A document that is the query itself is left out, so one more is asked for.
            docs, scores = index.search_batch(weights, min(top + 1, index.documents))
            hits = []
            for number, found, values in zip(numbers, docs, scores, strict=True):
                itself = collection.itself(number)
                kept = (found >= 0) & (found != (-1 if itself is None else itself))
                pairs = zip(found[kept][:top], values[kept][:top], strict=True)
                hits.append(
                    tuple(Hit(collection.doc_ids[int(doc)], float(score)) for doc, score in pairs)
                )
            result.append(hits)
        return result[0], result[1]

    def _actions(self, queries: Sequence[Query]) -> np.ndarray:
        """[Q, max_terms] candidates to add, STOP after the last."""
        env = HostQueries(queries, self.side.index, self.side.episode)
        seen: Any = env.spec.obs
        features = seen["candidates"].shape[-1]
        expected = self.network.own.kernel.shape[0]
        if features != expected:
            raise ValueError(
                f"the network looks at {expected} features of a candidate, and this version makes "
                f"{features}: train again."
            )
        return greedy_actions(self.network, env)[0]

    def _asking(self, queries: Mapping[str, str] | Sequence[str]) -> Collection:
        """The collection's documents with other queries, and no judgement."""
        if isinstance(queries, str):
            raise TypeError("reformulate_all() got one text, expected several: use reformulate().")
        if isinstance(queries, Mapping):
            ids, texts = tuple(queries), tuple(queries.values())
        else:  # no document has an empty id
            ids, texts = ("",) * len(queries), tuple(queries)
        return dataclasses.replace(
            self.side.collection, query_ids=ids, queries=texts, judgements={}
        )

    def _added(self, query: Query, place: int) -> AddedTerm:
        features = zip(CANDIDATE_FEATURES, query.candidate_features[place], strict=True)
        return AddedTerm(
            term=query.candidates[place],
            surface=query.surfaces[place],
            weight=self.side.episode.weight,
            rank=place + 1,
            features={name: round(float(value), 6) for name, value in features},
        )

    def _lucene(self, text: str, added: Sequence[AddedTerm]) -> str:
        words: dict[str, str] = {}  # term -> as it was typed first
        counts = self.side.index.query_weights(text)
        for term, word in self.side.index.tokenizer.surface(text):
            words.setdefault(term, word)
        own = {word: counts[term] for term, word in words.items()}
        return lucene_query({**own, **{term.surface: term.weight for term in added}})


def lucene_query(weights: Mapping[str, float]) -> str:
    """Weighted words in the syntax of Lucene's classic query parser: `glacier cave^0.3`."""
    parts = []
    for word, weight in weights.items():
        boost = "" if weight == 1.0 else f"^{number(weight)}"
        parts.append(escaped(word) + boost)
    return " ".join(parts)


def escaped(word: str) -> str:
    """A word with a backslash before everything that Lucene's syntax would take for its own."""
    if word in LUCENE_WORDS:
        return "\\" + word
    return LUCENE_SYNTAX.sub(r"\\\1", word)


def number(weight: float) -> str:
    """A weight in plain digits; Lucene reads no exponents."""
    return f"{weight:.6f}".rstrip("0").rstrip(".")


def because(term: AddedTerm) -> str:
    """The main figures that made a term a candidate, for a reader."""
    known = term.features
    return (
        f"candidate {term.rank}, in {known['feedback documents']:.0%} of the feedback documents, "
        f"idf {known['idf']:.2f}, npmi {known['npmi, best']:.2f}, "
        f"cosine to query {known['cosine to query']:.2f}"
    )


def as_run(collection: Collection, numbers: Sequence[int], hits: Sequence[Sequence[Hit]]) -> Run:
    """Rankings of queries as a run: query id -> (document id, score), best first."""
    ids = [collection.query_ids[number] for number in numbers]
    return {query: list(found) for query, found in zip(ids, hits, strict=True)}


def write_reformulated(
    reformulator: Reformulator, queries: str | Path, run_file: str | Path, top: int
) -> dict[str, Any]:
    """Reformulate a file of queries and write what they find as a TREC run.

    Args:
        reformulator: Adds the terms.
        queries: JSON lines with `_id` and `text`.
        run_file: Is written.
        top: Documents of a query.

    Returns:
        How many queries were changed, and why the others were not.
    """
    found = reformulator.reformulate_all(read_queries(queries), top)
    try:
        write_run(run_file, {one.query_id: list(one.after) for one in found})
    except OSError as error:
        raise ValueError(
            f"{run_file} cannot be written ({error.strerror}), expected a path in a folder that "
            "exists: choose another --run-file."
        ) from None
    reasons = collections.Counter(one.reason for one in found if one.reason is not None)
    return {
        "queries": len(found),
        "reformulated": len(found) - reasons.total(),
        "unchanged": dict(reasons),
        "run_file": str(run_file),
    }
