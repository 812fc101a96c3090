"""Training a query reformulator: from options to a run on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.machine import configure as gpu_optimize

gpu_optimize.require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import numpy as np
import tensorflow as tf

from kytolly.loop.profile import RunKeeper
from kytolly.record.checkpoint import BEST, save_network
from kytolly.record.run_folder import RunFolder
from kytolly.search.index.corpus import available_splits
from kytolly.search.index.embedding import Encoder
from kytolly.search.model.candidate_scorer import CandidateScorer
from kytolly.search.reformulate.choice import (
    FEW_QUERIES,
    UNTESTED,
    Choice,
    HeldOut,
    Selection,
    read_choices,
    select,
    select_fusion,
    write_choices,
)
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.held_out import test_metrics
from kytolly.search.reformulate.loop_clock import LoopClock
from kytolly.search.reformulate.network import (
    NumpyScorer,
    copied_scorer,
    load_pretrained,
    pretrained_digests,
)
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.ppo_training import COLLECTION, save_search, train_with_ppo
from kytolly.search.reformulate.prepare import LEARNING, Preparation, prepare
from kytolly.search.reformulate.profile import profile_loop
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.report import phase_rows, write_phases
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import concatenation, subset
from kytolly.search.reformulate.warm_start import held_out_networks, parts_of, warm_network
from kytolly.search.reformulate.whole_search import confirm_choice

Say = Callable[[str], None]
EVALUATED = 300  # training queries that PPO is evaluated on; dev queries are for the choice alone


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
    """Prepare, warm-start and train; returns what `result.json` holds.

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
            splits = [one for one in (*LEARNING, *(["test"] if test else [])) if one in known]
            preparation = prepare(options, say, splits, encoder)
            summary, network = train_network(preparation, folder, gpu, profile, say)
            if test:
                with preparation.context.phases.measure("test"):
                    choices = read_choices(folder.path)
                    reformulator = Reformulator(preparation.context, network, choices)
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
    preparation: Preparation, folder: RunFolder, gpu: bool, profile: bool, say: Say
) -> tuple[dict[str, Any], CandidateScorer]:
    """Warm start, PPO and the choice on held-out queries; the run's summary, and its network."""
    context, options = preparation.context, preparation.context.options
    dev = None if preparation.dev is None else DeviceQueries(preparation.dev, context.rules)
    with context.phases.measure("choice"):
        fusion = judged_fusion(preparation)
    say(f"searches weigh cosines with {fusion:g} beside BM25")
    known = context.encoder_name == "wordllama"  # the network of the package has seen no other
    begin = load_pretrained() if options.training.pretrained and known else None
    unseen = None if context.index.digest in pretrained_digests() else begin
    networks: dict[str, CandidateScorer] = {} if begin is None else {"pretrained": begin}
    summary: dict[str, Any] = {"algorithm": "ppo", "run_dir": str(folder.path), "env_steps": 0}
    held_out: dict[str, HeldOut] = {}
    fusions, train = tuple(dict.fromkeys((0.0, fusion))), None
    if preparation.train is not None:
        cost = options.training.term_cost
        train = DeviceQueries(preparation.train, context.rules, fusions, cost)
    synthetic = None
    if preparation.synthetic is not None:
        synthetic = DeviceQueries(preparation.synthetic, context.rules, fusions)
    if train is not None or synthetic is not None:
        learned, summary = learn(context, train, synthetic, begin, folder, gpu, profile, say)
        networks |= learned
        if train is not None and options.training.warm_start_epochs:
            with context.phases.measure("warm start"):
                parts = parts_of(context, train.table, preparation.dev)
                if parts is not None:
                    found = held_out_networks(options, train, parts, synthetic, unseen, say)
                    held_out["warm start"] = found
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
        made = list(networks.values())
        chosen = make_choice(made, dev, rest, fusion, options.seed, say)
        chosen = confirm_selections(preparation, chosen, made, rest, say)
    name, network = list(networks.items())[chosen["fused"].network]
    if preparation.train is None:
        save_search(context, folder.path)
    save_network(network, folder.path)
    write_choices(
        folder.path, fusion, [one.choice for one in chosen.values()], context.index.digest
    )
    return summary | {
        "collection": options.collection,
        "metric": options.retrieval.metric,
        "queries": preparation.counts,
        "fusion": fusion,
        "network": name,
        "choices": {kind: selection_summary(one) for kind, one in chosen.items()},
    }, network


def judged_fusion(preparation: Preparation) -> float:
    """The weight of the cosines: what the options say, or what train and dev queries prefer."""
    context = preparation.context
    tables = [one for one in (preparation.train, preparation.dev) if one is not None]
    if context.options.retrieval.fusion != "auto" or not tables:
        return context.usual_fusion
    judged = DeviceQueries(concatenation(tables), context.rules)
    return select_fusion(judged, context.usual_fusion, context.options.seed)


def learn(
    context: SearchContext,
    train: DeviceQueries | None,
    synthetic: DeviceQueries | None,
    begin: CandidateScorer | None,
    folder: RunFolder,
    gpu: bool,
    profile: bool,
    say: Say,
) -> tuple[dict[str, CandidateScorer], dict[str, Any]]:
    """The networks after the warm start and after PPO, by name, and PPO's summary."""
    options, training, phases = context.options, context.options.training, context.phases
    with phases.measure("warm start"):
        network = warm_network(options, train, synthetic, begin, say)
    networks, summary = {"warm start": copied_scorer(network, 0.0)}, {}
    if training.epochs == 0 or train is None:
        save_search(context, folder.path)
        return networks, {"algorithm": "ppo", "run_dir": str(folder.path), "env_steps": 0}
    half = gpu and training.use_amp
    if training.use_amp and not gpu:
        say("half precision does not pay on a CPU: it is off")
    network = copied_scorer(network, 0.0, half)
    rng = np.random.default_rng(options.seed)
    few = np.sort(rng.permutation(train.num_queries)[:EVALUATED])
    evaluation = DeviceQueries(
        subset(train.table, few), context.rules, train.fusions, training.term_cost, in_order=True
    )
    clock, keeper = LoopClock(), RunKeeper() if profile else None
    with phases.measure(COLLECTION):
        result = train_with_ppo(
            context, train, evaluation, network, folder.path, gpu, say, clock, keeper
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


def make_choice(
    networks: Sequence[CandidateScorer],
    dev: DeviceQueries | None,
    held_out: Sequence[HeldOut | None],
    fusion: float,
    seed: int,
    say: Say,
) -> dict[str, Selection]:
    """The choices with BM25 alone ("plain") and with cosines beside it ("fused").

    Both use one network: that of searches with cosines, if anything helps there.
    """
    most = max((len(one.fold) for one in held_out if one is not None), default=0)
    if dev is None and not most:
        say(f"no dev queries: weights are used at {UNTESTED:g} of what the network proposes")
        return {
            kind: Selection(Choice(one, UNTESTED), len(networks) - 1, 0, 1.0, 0.0, 1.0)
            for kind, one in (("fused", fusion), ("plain", 0.0))
        }
    count = 0 if dev is None else dev.num_queries
    if count + most < FEW_QUERIES:
        say(
            f"only {count + most} held-out queries: what helps on them may be chance; expected at "
            f"least {FEW_QUERIES}"
        )
    scorers = [NumpyScorer(network) for network in networks]
    fused = plain = select(scorers, dev, fusion, held_out, seed)
    if fusion:
        free = fused.choice.scale == 0.0
        first = 0 if free else fused.network
        kept = slice(None) if free else slice(first, first + 1)
        plain = select(scorers[kept], dev, 0.0, held_out[kept], seed)
        plain = plain._replace(network=first + plain.network)
        fused = fused._replace(network=plain.network)
    for one in dict.fromkeys((fused, plain)):
        base = f"BM25 + {one.choice.fusion:g} cosines" if one.choice.fusion else "BM25"
        if one.choice.scale:
            say(
                f"over {base}: dev gain {one.dev_gain:+.4f} by cross-validation of {one.tried} "
                f"choices (chance {one.chance:.3f})"
            )
        else:
            say(f"over {base}: nothing learned helps on held-out queries: they stay as they are")
    return {"fused": fused, "plain": plain}


def confirm_selections(
    preparation: Preparation,
    chosen: Mapping[str, Selection],
    networks: Sequence[CandidateScorer],
    held_out: Sequence[HeldOut | None],
    say: Say,
) -> dict[str, Selection]:
    """The selections, as far as searches of all documents confirm them."""
    context, dev, confirmed = preparation.context, preparation.dev, dict(chosen)
    numbers = None if dev is None else dev.number
    for kind, one in chosen.items():
        scorer, more = NumpyScorer(networks[one.network]), held_out[one.network]
        found = confirm_choice(context, one.choice, scorer, numbers, more, context.options.seed)
        if found is not None:
            confirmed[kind] = one._replace(choice=found.choice, whole_gain=found.gain)
            scale = found.choice.scale
            used = f"at a scale of {scale:g} used" if scale else "so queries stay as they are"
            say(
                f"{found.queries:,} searches of all documents with {one.choice.fusion:g} cosines: "
                f"gain {found.gain:+.4f} (chance {found.chance:.3f}), {used}"
            )
    return confirmed


def selection_summary(one: Selection) -> dict[str, Any]:
    """A selection as `result.json` holds it."""
    found = {**one.choice._asdict(), **one._asdict()}
    del found["choice"], found["network"]
    return found


def saved_where(path: Path) -> str:
    """The message for somebody who interrupted a run."""
    if not (path / BEST).is_file():
        return "Training had not begun: nothing is saved."
    return (
        f"The run is saved in {path}; `kytolly reformulate {path} QUERY` uses the network that "
        "gained most so far."
    )
