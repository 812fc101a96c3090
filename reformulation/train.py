"""Training a query reformulator: from options to a run on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kytolly.machine import configure as gpu_optimize

gpu_optimize.require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import numpy as np
import tensorflow as tf

from kytolly.record.checkpoint import BEST, save_network
from kytolly.record.run_folder import RunFolder
from kytolly.reformulation.episode import NO_TERM, GainExamples, Queries
from kytolly.reformulation.loop_clock import LoopClock
from kytolly.reformulation.network import make_half_precision_scorer, make_scorer
from kytolly.reformulation.options import ReformulationOptions
from kytolly.reformulation.ppo_training import COLLECTION, train_with_ppo
from kytolly.reformulation.prepare import LEARNING, Preparation, prepare
from kytolly.reformulation.profile import LoopKeeper, profile_loop
from kytolly.reformulation.reformulator import Reformulator
from kytolly.reformulation.report import phase_rows, test_metrics, write_phases
from kytolly.reformulation.search import SearchSide
from kytolly.reformulation.warm_start import warm_start, warm_start_examples
from kytolly.retrieval.corpus import available_splits

Say = Callable[[str], None]
IMPROVED = 1e-6  # gain, in units of the metric; less is rounding


def train(
    options: ReformulationOptions,
    *,
    gpu: bool = False,
    log_dir: str | Path | None = None,
    test: bool = False,
    profile: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Prepare, warm-start and train; returns what `result.json` holds.

    Args:
        options: The collection, and how to learn.
        gpu: Train on the first GPU instead of the CPU.
        log_dir: The run's folder, which must be empty or not exist; None: a new one.
        test: Evaluate on the test queries once, at the end.
        profile: Time the parts of PPO's loop apart, after training.
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
            preparation = prepare(options, say, ("train", "dev", "test") if test else LEARNING)
            summary, network = train_network(preparation, folder, gpu, profile, say)
            if test:
                with preparation.side.phases.measure("test"):
                    reformulator = Reformulator(preparation.side, network)
                    summary["test"] = test_metrics(reformulator, folder.path)
    except BaseException as error:
        folder.remove_if_empty()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(saved_where(folder.path)) from None
        raise
    summary |= closing_summary(summary, preparation.side, time.perf_counter() - began)
    write_phases(folder.path, summary)
    folder.write_result(summary)
    return summary


def closing_summary(
    summary: dict[str, Any], side: SearchSide, total_seconds: float
) -> dict[str, Any]:
    """The part of a run's summary that is known when all is done: times, and the embedding cache.

    With a profile of the loop, its rows take the place of the loop's phase.
    """
    seconds, profile = dict(side.phases.seconds), summary.get("loop_profile")
    if profile is not None:
        del seconds[COLLECTION]
        seconds |= {**profile["seconds"], "profile": seconds.pop("profile")}
    cache = side.cache
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
) -> tuple[dict[str, Any], keras.Model]:
    """Warm start and PPO; the run's summary, and the network that gains most on dev queries."""
    side, counts = preparation.side, dict(preparation.counts)
    options, phases, all_queries = side.options, side.phases, preparation.train.num_queries
    network, warm_gain = make_warm_network(preparation, say)
    counts["train_not_improvable"] = all_queries - preparation.train.num_queries
    if gpu and options.training.use_amp:
        network = make_half_precision_scorer(network, preparation.train, options)
    elif options.training.use_amp:
        say("half precision does not pay on a CPU: it is off")
    warm_weights = network.get_weights()
    clock, keeper = LoopClock(), LoopKeeper() if profile else None
    with phases.measure(COLLECTION):
        result = train_with_ppo(preparation, network, folder.path, gpu, say, clock, keeper)
    summary: dict[str, Any] = {**result.summary, "device_utilization": clock.utilization}
    if keeper:
        with phases.measure("profile"):
            seconds, busy = phases.seconds[COLLECTION], clock.utilization
            summary["loop_profile"] = profile_loop(
                keeper.loop, result.summary, seconds, busy
            )._asdict()
        keeper.release()
    trained_gain = result.evaluation.return_mean
    if warm_gain > trained_gain:
        say(
            f"kept the network from before PPO: dev gain {warm_gain:+.4f}, "
            f"and {trained_gain:+.4f} after PPO"
        )
        network.set_weights(warm_weights)
        save_network(network, folder.path)
        summary["evaluation"] |= greedy_metrics(network, preparation.dev)
    summary |= {
        "collection": options.collection,
        "metric": options.retrieval.metric,
        "queries": counts,
        "search": preparation.train.search_metrics(),
        "collect_batch_size": result.agent.cfg.num_envs,
        "dev_gain": {
            "before_ppo": warm_gain,
            "after_ppo": trained_gain,
            "kept": max(warm_gain, trained_gain),
        },
    }
    return summary, network


def make_warm_network(preparation: Preparation, say: Say) -> tuple[keras.Model, float]:
    """The network after the warm start, and its mean gain on dev queries.

    With the option `only_improvable`, `preparation.train` loses the queries that no single
    candidate improves.
    """
    side, train = preparation.side, preparation.train
    options, training = side.options, side.options.training
    network = make_scorer(train, options)
    with side.phases.measure("one-step gains"):
        if training.warm_start_epochs:
            examples = warm_start_examples(train, options)
        else:
            examples = train.gain_examples(1, options.seed)
    with side.phases.measure("warm start"):

        def watch(row: dict[str, float]) -> None:
            if row["epoch"] == 1 or row["epoch"] % 10 == 0:
                say(f"warm start: pass {row['epoch']}, dev gain {row['dev_gain']:+.4f}")

        rows = warm_start(network, examples, preparation.dev, options, watch)
    if rows:
        gain = max(row["dev_gain"] for row in rows)
    else:
        gain = greedy_metrics(network, preparation.dev)["return_mean"]
    if training.only_improvable:
        preparation.train = improvable_queries(train, examples, say)
    return network, gain


def improvable_queries(queries: Queries, examples: GainExamples, say: Say) -> Queries:
    """The queries that at least one single candidate improves.

    Raises:
        ValueError: There is none.
    """
    first = examples.added == 0
    best = np.full(queries.num_queries, -np.inf)
    np.maximum.at(best, examples.query[first], examples.gain[first].max(axis=1))
    kept = np.flatnonzero(best > IMPROVED)
    if not len(kept):
        raise ValueError(
            f"no candidate improves any of the {queries.num_queries} training queries, so there is "
            "nothing to learn: change candidates, weight or metric."
        )
    say(f"PPO trains with {len(kept)} of {queries.num_queries} queries, which a candidate improves")
    return queries.subset(kept) if len(kept) < queries.num_queries else queries


def greedy_metrics(network: keras.Model, queries: Queries) -> dict[str, float]:
    """Metrics of one greedy episode of each query, as those of an evaluation."""
    actions, gains = queries.greedy_player(network)()
    lengths = np.minimum((actions != NO_TERM).sum(axis=1) + 1, queries.rules.max_terms)
    return {
        "return_mean": float(gains.mean()),
        "return_std": float(gains.std()),
        "length_mean": float(lengths.mean()),
    }


def saved_where(path: Path) -> str:
    """What to say to somebody who interrupted a run."""
    if not (path / BEST).is_file():
        return "Training had not begun: nothing is saved."
    return (
        f"The run is saved in {path}; `kytolly reformulate {path} QUERY` uses the network that "
        "gained most so far."
    )
