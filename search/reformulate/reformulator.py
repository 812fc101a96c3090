"""Better queries from a trained run, without a judgment."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import operator
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import keras
import numpy as np

from kytolly.config.words import value_text
from kytolly.record.checkpoint import BEST, is_finite
from kytolly.record.network_file import load_network
from kytolly.record.saved_run import SavedRun
from kytolly.search.index.collection import Collection
from kytolly.search.index.corpus import is_unicode, read_queries
from kytolly.search.index.embedding import Encoder
from kytolly.search.index.files import open_file, short, stored_archive
from kytolly.search.index.metrics import Run
from kytolly.search.index.tokens import AUTO
from kytolly.search.index.trained_documents import Overlap, TrainedDocuments
from kytolly.search.index.trec import check_replaceable, write_ranking
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import PRETRAINED_SCALE, Choice, Choices, read_choices
from kytolly.search.reformulate.context_cache import cached_context, cached_scorer
from kytolly.search.reformulate.device_env import used_proposals
from kytolly.search.reformulate.gain_model import GainModel, ranked_documents
from kytolly.search.reformulate.network import PRETRAINED, NumpyScorer
from kytolly.search.reformulate.options import (
    TYPED_SHARE,
    ReformulationOptions,
    RetrievalOptions,
    read_run_options,
)
from kytolly.search.reformulate.query import (
    CANDIDATE_FEATURES,
    STATE_FEATURES,
    Query,
    SearchRules,
    SkippedQuery,
)
from kytolly.search.reformulate.result import (
    AddedTerm,
    Hit,
    LoweredTerm,
    Reformulation,
    term_source,
)
from kytolly.search.reformulate.search import SearchContext, tokenizer_from, without_lists
from kytolly.search.reformulate.table import padded_rows

OPTIONS_FILE = "reformulation.yaml"
SCORER = keras.saving.get_registered_name(CandidateScorer)
BATCH = 256  # queries reformulated at once
DIGITS = 4  # of weights and gains; the last ones of a product depend on how many queries there are
NOTHING_HELPS = "the agent expects no change to help"
NOTHING_LEARNED = "nothing was learned that helps on held-out queries"


class Plan(NamedTuple):
    """The weighted terms to search for in place of a query.

    Attributes:
        query: The query with its candidates; None if it has none.
        changes: Changes for `Query.changed_weights`; added terms first, the heaviest before others.
        weights: Term -> weight.
        expected: Gain in the metric that the network expects.
        reason: Why nothing is changed; None if something is.
    """

    query: Query | None
    changes: dict[int, float]
    weights: dict[str, float]
    expected: float
    reason: str | None


class Reformulator:
    """Adds weighted terms to queries and lowers terms of theirs.

    What is changed is what a trained network proposes, as far as dev queries allowed it.

    Args:
        context: The collection's documents, their index and embeddings.
        network: A `CandidateScorer`, perhaps in NumPy.
        choices: The use of its proposals.
        fusion: Weight of the cosines beside BM25; None: that of the choices.
        gains: Expects the gain of each changed query, and says where it pays; None: the network
            does.
    """

    def __init__(
        self,
        context: SearchContext,
        network: CandidateScorer | NumpyScorer,
        choices: Choices,
        fusion: float | None = None,
        gains: GainModel | None = None,
    ):
        self.context, self.choices = context, choices
        self.scorer = network if isinstance(network, NumpyScorer) else NumpyScorer(network)
        self.gains = gains
        usual = context.usual_fusion if choices.fusion is None else choices.fusion
        self.fusion = usual if fusion is None else fusion

    @classmethod
    def load(
        cls,
        run_dir: str | Path,
        collection: str | Path | None = None,
        fusion: float | None = None,
        encoder: Encoder | None = None,
        language: str | None = None,
    ) -> Reformulator:
        """The reformulator that a run trained; no judgment is read.

        Args:
            run_dir: The run's folder.
            collection: A collection to search instead of the one that the run was trained with;
                if more than a tenth of its documents are others, a warning says that nothing was
                chosen for them.
            fusion: Weight of the cosines beside BM25; None: what the run chose.
            encoder: The encoder that was given to `train`, if one was.
            language: Language of that collection, "auto" to detect it, or "none"; None: that of
                the run.

        Raises:
            ValueError: The folder is no such run, or the collection cannot be read.
        """
        path = Path(run_dir)
        if not os.path.isfile(path / OPTIONS_FILE):  # False for whatever is no path
            SavedRun.existing(run_dir)
            raise ValueError(
                f"{run_dir} has no {OPTIONS_FILE}, expected a run of train_optimized.py: give the "
                "folder that it printed."
            )
        try:
            options = read_run_options(path / OPTIONS_FILE)
        except ValueError as error:
            raise ValueError(
                f"{error} A run of an older version has to be trained again."
            ) from None
        choices, options = read_choices(path), without_lists(options)
        if choices.fusion is None:
            warnings.warn(
                f"{run_dir} was stopped before dev queries chose which changes help: all are made, "
                "tested or not. Train again to the end, or give the word pretrained in its place.",
                stacklevel=2,
            )
        if collection is not None:
            options = dataclasses.replace(options, collection=str(collection))
        usual = tokenizer_from(options.retrieval).identity
        if language is not None:
            options = in_language(options, language)
        network = load_scorer(path / BEST)
        _check_encoder(encoder, options)
        context = SearchContext.load(options, (), saved=path, encoder=encoder)
        gains = GainModel.of_run(path)
        overlap = None
        if choices.digest and choices.digest != context.index.digest:
            overlap = documents_in_common(path, choices.digest, context.collection)
        other_documents = overlap is not None and not overlap.is_same_collection
        if other_documents or context.index.tokenizer.identity != usual:
            choices, context = Choices(None, {}), for_unknown_documents(context)
            gains = GainModel.read() if context.encoder_name == "wordllama" else None
            where = f"other documents than those of {options.collection}"
            warnings.warn(
                f"{run_dir} was trained with {where if other_documents else 'another language'}: "
                "nothing says that its network helps here. Train again with these documents, or "
                "give the word pretrained in place of the run: that is trained for unknown ones.",
                stacklevel=2,
            )
        elif overlap is not None and (overlap.new or overlap.gone):
            warnings.warn(overlap.text(str(run_dir)), stacklevel=2)
        return cls(context, network, choices, fusion, gains)

    @classmethod
    def pretrained(
        cls,
        collection: str | Path,
        fusion: float | None = None,
        language: str = AUTO,
        rewriter: str | Path | None = None,
    ) -> Reformulator:
        """The reformulator that comes with the package, for documents without any judgment.

        What it makes of the documents is kept in the user's cache folder (`context_cache`).

        Args:
            collection: Folder in the BEIR layout, or builtin.
            fusion: Weight of the cosines beside BM25; None: 1.
            language: Language of the documents, "none" for words as they are, or "auto" to detect
                it.
            rewriter: Folder of a rewriter's run, trained with other documents of that subject: its
                terms are candidates too, of which the network knows no more than of others.

        Raises:
            ValueError: The collection cannot be read, or the rewriter does not fit its words.
        """
        # The network has seen no other encoder.
        retrieval = RetrievalOptions(encoder="wordllama", language=language)
        options = ReformulationOptions(collection=str(collection), retrieval=retrieval)
        context = for_unknown_documents(cached_context(options))
        if rewriter is not None:
            context = with_rewriter(context, rewriter)
        network = cached_scorer(PRETRAINED, load_scorer)
        choices = Choices(None, {}, untested=PRETRAINED_SCALE)
        return cls(context, network, choices, fusion, GainModel.read())

    def reformulate(self, text: str, top: int = 10) -> Reformulation:
        """Reformulate one query.

        Args:
            text: The query. One without a word, such as "", comes back unchanged, with the reason.
            top: Documents of each ranking, at least 1.

        Raises:
            TypeError: The text is none, or `top` no whole number.
            ValueError: The text has half a character, or `top` is below 1.
        """
        if not isinstance(text, str):
            raise TypeError(
                f"reformulate() got {value_text(text)}, expected the text of one query: give "
                "several to reformulate_all()."
            )
        return self.reformulate_all({"": text}, top)[0]

    def reformulate_all(
        self, queries: Mapping[str, str] | Sequence[str], top: int = 10
    ) -> list[Reformulation]:
        """Reformulate many queries at once.

        Args:
            queries: Texts, or id -> text. A query that has the id and the text of a document does
                not find that document.
            top: Documents of each ranking, at least 1.

        Raises:
            TypeError: A text is none, or `top` no whole number.
            ValueError: A text has half a character, `top` is below 1, or the rankings would take
                more memory than is free.
        """
        top = checked_top(top)
        collection = self._with_queries(queries)
        numbers = range(len(collection.queries))
        plans = self.plans(collection, numbers)
        before, after = self.rankings(collection, numbers, plans, top)
        results = []
        for query_id, text, plan, old, new in zip(
            collection.query_ids, collection.queries, plans, before, after, strict=True
        ):
            added, lowered = self._changed_terms(plan)
            results.append(
                Reformulation(
                    query_id=query_id,
                    text=text,
                    added=tuple(added),
                    lowered=tuple(lowered),
                    weights=plan.weights,
                    words=self._words(text, plan.weights, added),
                    before=old,
                    after=new,
                    expected_gain=round(plan.expected, DIGITS),
                    reason=plan.reason,
                )
            )
        return results

    def search(self, text: str, top: int = 10) -> tuple[Hit, ...]:
        """The best documents for a query after its reformulation, cosines included."""
        return self.reformulate(text, top).after

    def plans(
        self,
        collection: Collection,
        numbers: Sequence[int],
        mined: tuple[Sequence[Query], Sequence[SkippedQuery]] | None = None,
    ) -> list[Plan]:
        """Plans for queries.

        Args:
            collection: A collection with the same documents.
            numbers: Places of the queries in it.
            mined: Queries that `SearchContext.mine` returned, and those that it skipped; None:
                they are mined here.
        """
        if mined is None:
            left_out: list[SkippedQuery] = []
            mined = self.context.mine(collection, numbers, left_out), left_out
        queries, skipped = mined
        choice, plans = self.choices.at(self.fusion), {}
        for first in range(0, len(queries), BATCH):
            batch = queries[first : first + BATCH]
            weights, expected = scaled_proposals(
                self.scorer, batch, self.context.rules, choice._replace(fusion=self.fusion)
            )
            for query, row, gain in zip(batch, weights, expected.tolist(), strict=True):
                plan = query_plan(query, row, gain, choice)
                if self.gains is not None and plan.changes:
                    plan = self._paying_plan(plan, query, collection.queries[query.number])
                plans[query.number] = plan
        for skip in skipped:
            typed = self.context.index.query_weights(collection.queries[skip.number])
            plans[skip.number] = Plan(None, {}, typed, 0.0, skip.reason)
        return [plans[number] for number in numbers]

    def _paying_plan(self, plan: Plan, query: Query, text: str) -> Plan:
        """The plan with the gain that is expected of it, or none where it does not pay."""
        gains = cast(GainModel, self.gains)
        ranked = ranked_documents(self.context, query, text, plan.weights, self.fusion)
        expected = gains.expected_gain(ranked, self.fusion)
        if expected <= gains.margin(self.fusion):
            return Plan(query, {}, query.weights, expected, NOTHING_HELPS)
        return plan._replace(expected=expected)

    def rankings(
        self, collection: Collection, numbers: Sequence[int], plans: Sequence[Plan], top: int
    ) -> tuple[list[tuple[Hit, ...]], list[tuple[Hit, ...]]]:
        """[Q] best documents for the queries as they were typed, and [Q] for their plans."""
        typed = [self.context.index.query_weights(collection.queries[number]) for number in numbers]
        planned = [plan.weights for plan in plans]
        before, after = self.context.rank_all(
            collection, numbers, (typed, planned), self.fusion, top
        )
        return before, after

    def _with_queries(self, queries: Mapping[str, str] | Sequence[str]) -> Collection:
        """The collection's documents with other queries, and no judgment."""
        if isinstance(queries, str):
            raise TypeError("reformulate_all() got one text, expected several: use reformulate().")
        if not isinstance(queries, Iterable):
            raise TypeError(
                f"reformulate_all() got {value_text(queries)}, expected texts: give a list, or a "
                "dict of id -> text."
            )
        if isinstance(queries, Mapping):
            ids, texts = tuple(queries), tuple(queries.values())
        else:  # no document has an empty id
            ids, texts = ("",) * len(queries), tuple(queries)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(
                    f"reformulate_all() got the query {value_text(text)}, expected a text: give a "
                    "list of texts, or a dict of id -> text."
                )
            if not is_unicode(text):
                raise ValueError(
                    f"the query {short(text)} is not UTF-8 text; expected whole characters: check "
                    "the terminal's encoding."
                )
        return self.context.collection.with_queries(ids, texts)

    def _changed_terms(self, plan: Plan) -> tuple[list[AddedTerm], list[LoweredTerm]]:
        added, lowered, query = [], [], cast(Query, plan.query)  # None has no changes
        for place, change in plan.changes.items():
            surface = query.surfaces[place]
            values = query.candidate_features[place].astype(np.float64).round(6).tolist()
            features = dict(zip(CANDIDATE_FEATURES, values, strict=True))
            if place < len(query.candidates):
                term = query.candidates[place]
                source = term_source(features)
                added.append(AddedTerm(term, surface, change, place + 1, source, features))
            else:
                term = query.lowerable[place - len(query.candidates)]
                lowered.append(LoweredTerm(term, surface, plan.weights[term], features))
        return added, lowered

    def _words(
        self, text: str, weights: Mapping[str, float], added: Sequence[AddedTerm]
    ) -> dict[str, float]:
        words: dict[str, str] = {}  # term -> as it was typed first
        for term, word in self.context.index.tokenizer.surface(text):
            words.setdefault(term, word)
        typed = {word: weights[term] for term, word in words.items()}
        return {**typed, **{term.surface: term.weight for term in added}}


def checked_top(top: int) -> int:
    """The number of documents of a ranking, refused where it is none."""
    try:
        number = operator.index(top)
    except TypeError:
        raise TypeError(
            f"top is {value_text(top)}, expected a whole number of documents, at least 1: give one."
        ) from None
    if number < 1:
        raise ValueError(f"top is {number}, expected at least 1 document of a ranking: raise it.")
    return number


def documents_in_common(run_dir: Path, digest: str, collection: Collection) -> Overlap:
    """What a collection has in common with a run's documents; a run of before does not say."""
    trained = TrainedDocuments.read(run_dir)
    if trained is None or trained.digest != digest:
        return Overlap(same=0, new=len(collection.texts), gone=0)
    return trained.overlap(collection.texts)


def for_unknown_documents(context: SearchContext) -> SearchContext:
    """The search context for a network that learned from other documents.

    Which words of a query matter less, and what a rewriter writes for it, is learned for one
    collection: elsewhere it does harm.
    """
    retrieval = dataclasses.replace(
        context.options.retrieval,
        query_terms=0,
        rewriter=None,
        typed_share=TYPED_SHARE,
        fused_typed_share=TYPED_SHARE,
    )
    options = dataclasses.replace(context.options, retrieval=retrieval)
    return dataclasses.replace(context, options=options, generator=None, unknown=True)


def with_rewriter(context: SearchContext, run_dir: str | Path) -> SearchContext:
    """The search context with the terms of a rewriter's run as further candidates."""
    from kytolly.search.reformulate.generated import GeneratedTerms

    generator = GeneratedTerms.load(run_dir, learning=False)
    generator.check_index(context.index)
    retrieval = dataclasses.replace(context.options.retrieval, rewriter=str(run_dir))
    options = dataclasses.replace(context.options, retrieval=retrieval)
    return dataclasses.replace(context, options=options, generator=generator)


def in_language(options: ReformulationOptions, language: str) -> ReformulationOptions:
    """The options with another language, and its stop words."""
    retrieval = dataclasses.replace(options.retrieval, language=language, stop_words=AUTO, ngrams=0)
    return dataclasses.replace(options, retrieval=retrieval)


def _check_encoder(encoder: Encoder | None, options: ReformulationOptions) -> None:
    """Refuse an encoder that is not the run's."""
    retrieval = options.retrieval
    if encoder is None or (retrieval.encoder, retrieval.dimension) == ("own", encoder.dimension):
        return
    raise ValueError(
        f"the encoder {encoder.identity} gives {encoder.dimension} numbers, and the run was "
        f"trained with encoder: {retrieval.encoder} of {retrieval.dimension} numbers: give the "
        "encoder that was given to `train`, or none."
    )


def scaled_proposals(
    scorer: NumpyScorer, queries: Sequence[Query], rules: SearchRules, choice: Choice
) -> tuple[np.ndarray, np.ndarray]:
    """Weights [Q, N], times the scale of a choice, and expected gains [Q] of those at scale 1."""
    features = padded_rows([query.candidate_features for query in queries], rules.max_candidates)
    state = np.stack([np.append(query.state_features, choice.fusion) for query in queries])
    weights, expected = scorer(features, state.astype(np.float32))
    weights = weights * np.float32(choice.scale)
    return used_proposals(weights, features, state, rules, choice.fusion), expected


def query_plan(query: Query, weights: np.ndarray, gain: float, choice: Choice) -> Plan:
    """The plan of a query from the weights [N] of its candidates."""
    if choice.scale == 0.0:
        return Plan(query, {}, query.weights, gain, NOTHING_LEARNED)
    order = np.argsort(-weights, kind="stable")
    order = order[np.argsort(order >= len(query.candidates), kind="stable")]
    changes = {
        int(place): round(float(weights[place]), DIGITS) for place in order if weights[place] > 0.0
    }
    if gain <= choice.margin or not changes:
        return Plan(query, {}, query.weights, gain, NOTHING_HELPS)
    after = {term: round(weight, DIGITS) for term, weight in query.changed_weights(changes).items()}
    return Plan(query, changes, after, gain, None)


def load_scorer(path: Path) -> CandidateScorer:
    """The network of a run, which is a `CandidateScorer` for what this version observes.

    The file says which classes are to be built, and how large: that is read before any is.
    """
    expected = [len(CANDIDATE_FEATURES), len(STATE_FEATURES) + 1]
    try:
        with open_file(path, "expected the network") as file:
            config = json.loads(stored_archive(file).read("config.json"))
        shapes = config["build_config"]["input_shape"]
        sizes = [shapes[name][-1] for name in ("candidates", "state")]
        known = config["registered_name"] == SCORER
        widths = [max(expected), *config["config"]["hidden_units"]]
        size = 4 * sum(a * b for a, b in itertools.pairwise(widths))
        if not known or sizes != expected or size > path.stat().st_size:
            raise ValueError(f"{short(config['registered_name'])} for {sizes} features")
        network: Any = load_network(path)
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
    return {query: list(ranking) for query, ranking in zip(ids, hits, strict=True)}


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
    results = reformulator.reformulate_all(read_queries(queries), top)
    write_ranking({result.query_id: list(result.after) for result in results}, run_file)
    reasons = collections.Counter(result.reason for result in results if result.reason is not None)
    return {
        "queries": len(results),
        "reformulated": len(results) - reasons.total(),
        "unchanged": dict(reasons),
        "run_file": str(run_file),
    }
