"""Better queries from a trained run, without a judgment."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from kytolly.machine.memory import check_memory
from kytolly.model.candidate_scorer import CandidateScorer
from kytolly.record.checkpoint import BEST, is_finite
from kytolly.record.network_file import load_network
from kytolly.record.run_folder import RunFolder
from kytolly.reformulation.candidates import CANDIDATE_FEATURES, STATE_FEATURES, SkippedQuery
from kytolly.reformulation.episode import NO_TERM, query_spec
from kytolly.reformulation.host_env import HostQueries
from kytolly.reformulation.lucene import lucene_query
from kytolly.reformulation.options import read_options
from kytolly.reformulation.query import Query
from kytolly.reformulation.result import AddedTerm, Hit, Reformulation
from kytolly.reformulation.search import SearchSide
from kytolly.retrieval.collection import Collection
from kytolly.retrieval.corpus import is_unicode, read_queries
from kytolly.retrieval.files import open_file, short, stored_archive
from kytolly.retrieval.metrics import Run
from kytolly.retrieval.trec import check_replaceable, write_run

OPTIONS_FILE = "reformulation.yaml"
INDEX_FILE = "index.npz"
SCORER = keras.saving.get_registered_name(CandidateScorer)
HIT_BYTES = 250  # of one document in a ranking
BATCH = 256  # queries reformulated at once
NOTHING_HELPS = "the agent expects no candidate to help"


class Plan(NamedTuple):
    """The weighted terms to search for in place of a query.

    Attributes:
        query: The query with its candidates; None if it has none.
        chosen: Places of the candidates to add.
        weights: Term -> weight.
        reason: Why nothing is added; None if something is.
    """

    query: Query | None
    chosen: list[int]
    weights: dict[str, float]
    reason: str | None


class Reformulator:
    """Adds the terms to queries that a trained network chooses.

    Args:
        side: The collection's documents and their index.
        network: Keras model ({candidates, state}) -> (logits [E, N + 1], value [E]).
    """

    def __init__(self, side: SearchSide, network: keras.Model):
        self.side, self.network = side, network

    @classmethod
    def load(cls, run_dir: str | Path, collection: str | Path | None = None) -> Reformulator:
        """The reformulator that a run trained; no judgment is read.

        Args:
            run_dir: The run's folder.
            collection: A collection to search instead of the one that the run was trained with.

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
        network = load_scorer(Path(run_dir) / BEST)
        side = SearchSide.load(options, (), saved_index=Path(run_dir) / INDEX_FILE)
        return cls(side, network)

    def reformulate(self, text: str, top: int = 10) -> Reformulation:
        """Reformulate one query.

        Args:
            text: The query.
            top: Documents of each ranking.
        """
        return self.reformulate_all({"": text}, top)[0]

    def reformulate_all(
        self, queries: Mapping[str, str] | Sequence[str], top: int = 10
    ) -> list[Reformulation]:
        """Reformulate many queries at once.

        Args:
            queries: Texts, or id -> text. A query that has the id and the text of a document does
                not find that document.
            top: Documents of each ranking.

        Raises:
            ValueError: A text is none, or the rankings would take more memory than is free.
        """
        collection = self._with_queries(queries)
        numbers = range(len(collection.queries))
        plans = self.plans(collection, numbers)
        before, after = self.rankings(collection, numbers, plans, top)
        made = []
        for query_id, text, plan, old, new in zip(
            collection.query_ids, collection.queries, plans, before, after, strict=True
        ):
            added = [self._added_term(plan.query, place) for place in plan.chosen if plan.query]
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
        """Plans for queries of a collection with the same documents."""
        skipped: list[SkippedQuery] = []
        mined = self.side.mine(collection, numbers, skipped)
        found: dict[int, Plan] = {}
        for first in range(0, len(mined), BATCH):
            queries = mined[first : first + BATCH]
            for query, actions in zip(queries, self._actions(queries), strict=True):
                chosen = [int(place) for place in actions if place != NO_TERM]
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
        """[Q] best documents for the queries as they were typed, and [Q] for their plans."""
        index = self.side.index
        check_memory(
            2 * HIT_BYTES * len(numbers) * min(top, index.documents),
            f"rankings of {top} documents for {len(numbers):,} queries",
            "lower --top, or give fewer queries",
        )
        typed = [index.query_weights(collection.queries[number]) for number in numbers]
        result = []
        for weights in (typed, [plan.weights for plan in plans]):
            # A document that is the query itself is left out, so one more is asked for.
            docs, scores = index.search_batch(weights, min(top + 1, index.documents))
            hits = []
            for number, found, values in zip(numbers, docs, scores, strict=True):
                own = collection.own_document(number)
                kept = (found >= 0) & (found != (-1 if own is None else own))
                pairs = zip(found[kept][:top], values[kept][:top], strict=True)
                hits.append(
                    tuple(Hit(collection.doc_ids[int(doc)], float(score)) for doc, score in pairs)
                )
            result.append(hits)
        return result[0], result[1]

    def _actions(self, queries: Sequence[Query]) -> np.ndarray:
        """[Q, max_terms] candidates to add, NO_TERM after the last."""
        env = HostQueries(queries, self.side.index, self.side.episode)
        return env.greedy_player(self.network, xla=False)().actions

    def _with_queries(self, queries: Mapping[str, str] | Sequence[str]) -> Collection:
        """The collection's documents with other queries, and no judgment."""
        if isinstance(queries, str):
            raise TypeError("reformulate_all() got one text, expected several: use reformulate().")
        if isinstance(queries, Mapping):
            ids, texts = tuple(queries), tuple(queries.values())
        else:  # no document has an empty id
            ids, texts = ("",) * len(queries), tuple(queries)
        for text in texts:
            if not is_unicode(text):
                raise ValueError(
                    f"the query {short(text)} is not UTF-8 text; expected whole characters: check "
                    "the terminal's encoding."
                )
        return dataclasses.replace(self.side.collection, query_ids=ids, queries=texts, judgments={})

    def _added_term(self, query: Query, place: int) -> AddedTerm:
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


def load_scorer(path: Path) -> keras.Model:
    """The network of a run, which is a `CandidateScorer` for what this version observes.

    The file says which classes are to be built, and how large: that is read before any is.
    """
    seen: Any = query_spec(1, len(CANDIDATE_FEATURES), len(STATE_FEATURES)).obs
    expected = [seen[name].shape[-1] for name in ("candidates", "state")]
    try:
        with open_file(path, "expected the network") as file:
            config = json.loads(stored_archive(file).read("config.json"))
        shapes = config["build_config"]["input_shape"]
        found = [shapes[name][-1] for name in ("candidates", "state")]
        known = config["registered_name"] == SCORER and config["config"]["activation"] == "silu"
        widths = [max(expected), *config["config"]["hidden_units"]]
        size = 4 * sum(a * b for a, b in itertools.pairwise(widths))
        if not known or found != expected or size > path.stat().st_size:
            raise ValueError(f"{short(config['registered_name'])} for {found} features")
        network = load_network(path)
        if not is_finite(network):
            raise ValueError("weights that are not finite")
    except Exception as error:  # zipfile, json and Keras each have their own
        raise ValueError(
            f"{path} cannot be used ({type(error).__name__}: {short(str(error), 200)}); expected a "
            f"{SCORER} for {expected} features, as this version writes it: train again."
        ) from None
    return network


def trec_run(collection: Collection, numbers: Sequence[int], hits: Sequence[Sequence[Hit]]) -> Run:
    """Rankings of queries as a run: query id -> (document id, score), best first."""
    ids = [collection.query_ids[number] for number in numbers]
    return {query: list(found) for query, found in zip(ids, hits, strict=True)}


def reformulate_file(
    reformulator: Reformulator, queries: str | Path, run_file: str | Path, top: int
) -> dict[str, Any]:
    """Reformulate a file of queries and write what they find as a TREC run.

    Args:
        reformulator: Adds the terms.
        queries: JSON lines with `_id` and `text`.
        run_file: Path of the run.
        top: Documents of each query.

    Returns:
        Numbers of queries, and of reformulated and unchanged ones, with the reasons.

    Raises:
        ValueError: The queries cannot be read, or the run would replace a file that is no run.
    """
    check_replaceable(run_file, "--run-file")
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
