"""Training a query reformulator: from options to a run on disk."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.machine.facts import require_tensorflow_backend

require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import numpy as np
import tensorflow as tf

from kytolly.loop.profile import RunKeeper
from kytolly.machine.memory import check_memory
from kytolly.record.checkpoint import BEST, save_network
from kytolly.record.run_folder import RunFolder
from kytolly.search.index.collection import warn_of_shared_queries
from kytolly.search.index.corpus import available_splits
from kytolly.search.index.embedding import Encoder
from kytolly.search.index.tokens import ENGLISH, NONE
from kytolly.search.index.training_queries import synthetic_collection
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import (
    HeldOut,
    Selection,
    read_choices,
    write_choices,
)
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.gain_model import GAINS_FILE, GainModel
from kytolly.search.reformulate.held_out import test_metrics
from kytolly.search.reformulate.network import (
    NumpyScorer,
    copied_scorer,
    load_pretrained,
    pretrained_digests,
)
from kytolly.search.reformulate.options import ReformulationOptions, write_options
from kytolly.search.reformulate.package_network import package_selections
from kytolly.search.reformulate.ppo_training import (
    COLLECTION,
    resolved_options,
    save_search,
    train_with_ppo,
)
from kytolly.search.reformulate.query import CANDIDATE_FEATURES, skip_report
from kytolly.search.reformulate.reformulator import (
    OPTIONS_FILE,
    Reformulator,
    for_unknown_documents,
)
from kytolly.search.reformulate.report import phase_rows, write_phases
from kytolly.search.reformulate.run_gains import fit_run_gains, save_gains
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.selection import (
    confirm_selections,
    dev_sample,
    evidence_text,
    judged_fusion,
    make_choice,
    selection_summary,
    train_sample,
)
from kytolly.search.reformulate.table import (
    QueryTable,
    make_table,
    row_bytes,
    subset,
)
from kytolly.search.reformulate.timing import LoopClock, Phases, profile_loop
from kytolly.search.reformulate.typed_share import with_typed_shares
from kytolly.search.reformulate.warm_start import held_out_networks, parts_of, warm_network
from kytolly.search.text.language import detect_stemmer

Say = Callable[[str], None]
LEARNING = ("train", "dev")  # the splits that training uses
EVALUATED = 300  # training queries that PPO is evaluated on; dev queries are for the choice alone


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


def train(
    options: ReformulationOptions,
    *,
    gpu: bool = False,
    log_dir: str | Path | None = None,
    test: bool = False,
    profile: bool = False,
    encoder: Encoder | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Prepare, warm-start and train; returns the contents of `result.json`.

    Args:
        options: The collection, and how to learn.
        gpu: Train on the first GPU instead of the CPU.
        log_dir: The run's folder, which must be empty or not exist; None: a new one.
        test: Evaluate on the test queries once, at the end.
        profile: Time the parts of PPO's loop apart, after training.
        encoder: An encoder of yours in place of the one that the options name.
        say: Receives the lines of the progress display.

    Raises:
        ValueError: Something in the options or the collection does not fit.
        KeyboardInterrupt: Its message says where the run is saved, if training had begun.
    """
    began = time.perf_counter()
    known = available_splits(options.collection)  # also says that a folder does not exist
    if test and "test" not in known:
        raise ValueError(
            f"{options.collection} has no judgments of a test split (there are: "
            f"{', '.join(known) or 'none'}): add qrels/test.tsv, or leave --test out."
        )
    folder = RunFolder.create(log_dir, f"query-reformulation_ppo_{options.seed}")
    folder.release()  # the trainer holds it
    try:
        with tf.device("/GPU:0" if gpu else "/CPU:0"):
            keras.utils.set_random_seed(options.seed)
            splits = [split for split in (*LEARNING, *(["test"] if test else [])) if split in known]
            preparation = prepare(options, say, splits, encoder)
            summary, network = train_network(preparation, folder, gpu, profile)
            if test:
                with preparation.context.phases.measure("test"):
                    choices = read_choices(folder.path)
                    reformulator = Reformulator(
                        preparation.context, network, choices, gains=GainModel.of_run(folder.path)
                    )
                    summary["test"] = test_metrics(reformulator, folder.path)
    except BaseException as error:
        folder.remove_if_empty()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(saved_where(folder.path)) from None
        raise
    summary |= closing_summary(summary, preparation.context, time.perf_counter() - began)
    write_phases(folder.path, summary)
    folder.write_result(summary)
    return summary


def closing_summary(
    summary: dict[str, Any], context: SearchContext, total_seconds: float
) -> dict[str, Any]:
    """The part of a run's summary that is known when all is done: times, and the embedding cache.

    With a profile of the loop, its rows take the place of the loop's phase.
    """
    seconds, profile = dict(context.phases.seconds), summary.get("loop_profile")
    if profile is not None:
        del seconds[COLLECTION]
        seconds |= {**profile["seconds"], "profile": seconds.pop("profile")}
    cache = context.cache
    return {
        "total_seconds": total_seconds,
        "phases": phase_rows(seconds, total_seconds),
        "embedding_cache": {
            "hits": cache.hits,
            "misses": cache.misses,
            "hit_rate": cache.hit_rate,
        },
    }


def train_network(
    preparation: Preparation, folder: RunFolder, gpu: bool, profile: bool
) -> tuple[dict[str, Any], CandidateScorer]:
    """Warm start, PPO and the choice on held-out queries; the run's summary, and its network."""
    context, options = preparation.context, preparation.context.options
    say = context.phases.say
    dev = None if preparation.dev is None else DeviceQueries(preparation.dev, context.rules)
    with context.phases.measure("choice"):
        fusion = judged_fusion(context, preparation.train, preparation.dev)
    say(f"searches weigh cosines with {fusion:g} beside BM25")
    known = context.encoder_name == "wordllama"  # the network of the package has seen no other
    begin = load_pretrained() if options.training.pretrained and known else None
    unseen = None if context.index.digest in pretrained_digests() else begin
    networks: dict[str, CandidateScorer] = {} if begin is None else {"pretrained": begin}
    summary: dict[str, Any] = {"algorithm": "ppo", "run_dir": str(folder.path), "env_steps": 0}
    held_out: dict[str, HeldOut] = {}
    warm: CandidateScorer | None = None
    parts: np.ndarray | None = None
    fusions, train = tuple(dict.fromkeys((0.0, fusion))), None
    if preparation.train is not None:
        cost = options.training.term_cost
        train = DeviceQueries(preparation.train, context.rules, fusions, cost)
    synthetic = None
    if preparation.synthetic is not None:
        synthetic = DeviceQueries(preparation.synthetic, context.rules, fusions)
    if train is not None or synthetic is not None:
        with context.phases.measure("warm start"):
            warm = warm_network(options, train, synthetic, begin, say)
    sample = None
    if (first := warm or begin) is not None:
        with context.phases.measure("choice"):
            sample = dev_sample(context, NumpyScorer(first), preparation.dev)
            context = preparation.context = with_typed_shares(context, sample, fusions)
        for queries in filter(None, (train, synthetic, dev)):
            queries.rules = context.rules
    if warm is not None:
        learned, summary = learn(context, train, warm, folder, gpu, profile)
        networks |= learned
        parts = None if train is None else parts_of(context, train.table, preparation.dev)
        if train is not None and parts is not None and options.training.warm_start_epochs:
            with context.phases.measure("warm start"):
                held_out_warm = held_out_networks(options, train, parts, synthetic, unseen, say)
                held_out["warm start"] = held_out_warm
    elif begin is None:
        raise ValueError(
            f"no query of the train split of {options.collection} can be used, and there is no "
            "network to begin with: add judgments, set synthetic_queries, or set pretrained: true "
            "and encoder: wordllama."
        )
    else:
        say("no query to learn from: the network that comes with the package is used as it is")
    with context.phases.measure("choice"):
        if train is not None and unseen is not None:
            fold = np.zeros(train.num_queries, np.int64)
            held_out["pretrained"] = HeldOut(train, [NumpyScorer(unseen)], fold)
        rest = [held_out.get(name) for name in networks]
        chosen = make_choice(list(networks.values()), dev, rest, fusion, options.seed, say)
        name, network = list(networks.items())[chosen["fused"].network]
        proposing = [NumpyScorer(network)]
        dev_queries = None if sample is None else sample._replace(networks=proposing)
        # Where no network like the chosen one was held out, those of the warm start are near it.
        of_network = held_out.get(name, held_out.get("warm start"))
        train_queries = train_sample(context, of_network, parts)
        tested = [dev_queries, train_queries if name in held_out else None]
        chosen = confirm_selections(context, chosen, [part for part in tested if part is not None])
    with context.phases.measure("expected gains"):
        gains = fit_run_gains(context, chosen.values(), train_queries, dev_queries)
        if gains is not None:
            chosen = {kind: gains.applied(one) for kind, one in chosen.items()}
            summary["gains"] = save_gains(gains, folder.path, options.retrieval.metric)
    if preparation.train is None:
        save_search(context, folder.path)
    if begin is not None and not any(one.choice.scale for one in chosen.values()):
        with context.phases.measure("choice"):
            not_learned = held_out.get("pretrained")
            of_package = use_package(preparation, chosen, begin, not_learned, folder.path)
        if of_package is not None:
            name, network, chosen = "pretrained", begin, of_package
    save_network(network, folder.path)
    write_choices(
        folder.path,
        fusion,
        [selection.choice for selection in chosen.values()],
        context.index.digest,
    )
    return summary | {
        "collection": options.collection,
        "metric": options.retrieval.metric,
        "queries": preparation.counts,
        "fusion": fusion,
        "network": name,
        "choices": {kind: selection_summary(selection) for kind, selection in chosen.items()},
    }, network


def use_package(
    preparation: Preparation,
    chosen: Mapping[str, Selection],
    network: CandidateScorer,
    held_out: HeldOut | None,
    folder: Path,
) -> dict[str, Selection] | None:
    """Choices that use the network of the package in place of those that change nothing.

    Args:
        preparation: Its context becomes that of unknown documents.
        chosen: Choices that change nothing.
        network: The network of the package.
        held_out: The train queries; None: there are none that it did not learn from.
        folder: The run's folder, where the options and the model of gains are written.

    Returns:
        None where it does not help on held-out queries either.
    """
    context, scorer = for_unknown_documents(preparation.context), NumpyScorer(network)
    samples = (dev_sample(context, scorer, preparation.dev), train_sample(context, held_out, None))
    fusions = {kind: one.choice.fusion for kind, one in chosen.items()}
    found = package_selections(context, scorer, fusions, [*filter(None, samples)])
    if found is None:
        return None
    preparation.context = context
    write_options(folder / OPTIONS_FILE, resolved_options(context))
    GainModel.read().save(folder / GAINS_FILE)
    for one in dict.fromkeys(found.values()):
        context.phases.say(evidence_text(selection_summary(one)))
    return found


def learn(
    context: SearchContext,
    train: DeviceQueries | None,
    network: CandidateScorer,
    folder: RunFolder,
    gpu: bool,
    profile: bool,
) -> tuple[dict[str, CandidateScorer], dict[str, Any]]:
    """The networks after the warm start and after PPO, by name, and PPO's summary.

    Args:
        context: The collection and how it is searched.
        train: Queries with judgments.
        network: The one after the warm start.
        folder: The run's folder.
        gpu: Train on the first GPU instead of the CPU.
        profile: Time the parts of PPO's loop apart, after training.
    """
    options, training, phases = context.options, context.options.training, context.phases
    networks = {"warm start": copied_scorer(network, 0.0)}
    if training.epochs == 0 or train is None:
        save_search(context, folder.path)
        return networks, {"algorithm": "ppo", "run_dir": str(folder.path), "env_steps": 0}
    half = gpu and training.use_amp
    if training.use_amp and not gpu:
        phases.say("half precision does not pay on a CPU: it is off")
    network = copied_scorer(network, 0.0, half)
    rng = np.random.default_rng(options.seed)
    few = np.sort(rng.permutation(train.num_queries)[:EVALUATED])
    evaluation = DeviceQueries(
        subset(train.table, few), context.rules, train.fusions, training.term_cost, in_order=True
    )
    clock, keeper = LoopClock(), RunKeeper() if profile else None
    with phases.measure(COLLECTION):
        result = train_with_ppo(
            context, train, evaluation, network, folder.path, gpu, clock, keeper
        )
    result.require_written()
    summary = {**result.summary, "device_utilization": clock.utilization}
    summary["collect_batch_size"] = result.agent.cfg.num_envs
    if keeper:
        with phases.measure("profile"):
            seconds, busy = phases.seconds[COLLECTION], clock.utilization
            profiled = profile_loop(keeper.loop, result.summary, seconds, busy)
            summary["loop_profile"] = profiled._asdict()
        keeper.release()
    return networks | {"ppo": copied_scorer(network, 0.0)}, summary


def saved_where(path: Path) -> str:
    """The message for somebody who interrupted a run."""
    if not (path / BEST).is_file():
        return "Training had not begun: nothing is saved."
    return (
        f"The run is saved in {path}; `kytolly reformulate {path} QUERY` uses its best network, "
        "whose changes no dev query has tested."
    )


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
    warn_of_shared_queries(context.collection)
    if options.retrieval.language == ENGLISH:
        stemmer, _ = detect_stemmer(context.collection.texts)
        if stemmer not in (ENGLISH, NONE):
            say(
                f"most documents are in {stemmer.capitalize()}, and are read as English: expected "
                "the language of the documents, give --language auto"
            )
    counts: dict[str, int] = {}
    tables = {split: _split_table(context, split, counts, say) for split in LEARNING}
    synthetic = None
    if options.training.synthetic_queries:
        asked = options.training.synthetic_queries
        texts = synthetic_collection(context.collection, asked, options.seed)
        synthetic = _split_table(context.with_texts(texts), "train", {}, lambda line: None)
        count = 0 if synthetic is None else len(synthetic.number)
        say(f"synthetic queries: {count} of {asked}")
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
