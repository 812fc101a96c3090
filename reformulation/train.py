"""Training a query reformulator: from options to a run on disk, judged if that is asked for."""

from __future__ import annotations

import dataclasses
import gc
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kytolly.machine import configure as gpu_optimize

gpu_optimize.require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import numpy as np
import tensorflow as tf

from kytolly.callback.base import Callback, TrainState
from kytolly.record.checkpoint import BEST, save_network
from kytolly.record.run_folder import RunFolder
from kytolly.reformulation.candidates import skip_report
from kytolly.reformulation.gains import gain_examples
from kytolly.reformulation.options import ReformulationOptions, write_options
from kytolly.reformulation.prepare import (
    STOP,
    GreedyPlayer,
    Phases,
    SearchSide,
    all_gain_examples,
    make_scorer,
    ppo_config,
    warm_started,
)
from kytolly.reformulation.profile import LoopClock, loop_profile
from kytolly.reformulation.reformulator import INDEX_FILE, OPTIONS_FILE, Reformulator
from kytolly.reformulation.report import judged, profile, write_profile
from kytolly.reformulation.search import (
    Table,
    World,
    environment,
    for_trainer,
    search_figures,
    searched,
    some_of,
)
from kytolly.retrieval.corpus import BUILTIN, available_splits
from kytolly.trainer import Trainer, TrainResult

Say = Callable[[str], None]
HALF = "mixed_float16"
IMPROVED = 1e-6  # gain, in units of the metric; less is rounding
COLLECTION = "batched collection and update"


class Prepared(NamedTuple):
    """Everything that training needs.

    Attributes:
        side: Collection, index and embeddings.
        table: Training queries.
        dev: All dev queries that can be reformulated, in order.
        counts: How many queries there are, and how many are left out for which reason.
    """

    side: SearchSide
    table: Table
    dev: World
    counts: dict[str, int]


class SaveBeforePPO(Callback):
    """Makes a run usable before PPO's first evaluation: options, index, the warm start's network.

    Args:
        side: Of the run.
    """

    def __init__(self, side: SearchSide):
        self.side = side

    def on_train_begin(self, state: TrainState) -> None:
        """Write all three."""
        write_options(state.run_dir / OPTIONS_FILE, saved_options(self.side))
        self.side.index.save(state.run_dir / INDEX_FILE)
        save_network(state.network, state.run_dir)


class DevLines(Callback):
    """A line for each evaluation on dev queries.

    Args:
        say: Gets the lines.
        metric: Whose gain evaluations are.
    """

    def __init__(self, say: Say, metric: str):
        self.say, self.metric = say, metric

    def on_evaluation(self, state: TrainState) -> None:
        """Say how far the run is."""
        if state.evaluation is None:
            return
        total, speed = state.config.total_env_steps, state.metrics.get("env_steps_per_second", 0.0)
        remaining = max(total - state.env_steps, 0)  # the last rollout may pass the total
        left = remaining * state.wall_seconds / max(state.env_steps, 1)
        self.say(
            f"{COLLECTION}: {state.env_steps:,} of {total:,} env steps, dev {self.metric} "
            f"{state.evaluation.return_mean:+.4f} (best {state.best_return:+.4f}), "
            f"{speed:,.0f} env steps/s, at most {left:.0f} s left"
        )


def train(
    options: ReformulationOptions,
    *,
    gpu: bool = False,
    log_dir: str | Path | None = None,
    test: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Prepare, warm-start, train and, if asked, judge; returns what `result.json` holds.

    Args:
        options: Settings.
        gpu: Train on the first GPU instead of the CPU.
        log_dir: The run's folder, which must be empty or not exist; None: a new one.
        test: Judge the test queries once, at the end.
        say: Gets the lines of the progress display.

    Raises:
        ValueError: Something in the options or the collection does not fit.
        KeyboardInterrupt: It says where the run is saved, if it has begun.
    """
    began = time.perf_counter()
    known = available_splits(options.collection)  # also says that a folder does not exist
    if test and "test" not in known:
        raise ValueError(
            f"{options.collection} has no judgements of a test split (there are: "
            f"{', '.join(known) or 'none'}): add qrels/test.tsv, or leave --test out."
        )
    folder = RunFolder.create(log_dir, f"query-reformulation_ppo_{options.seed}")
    try:
        with tf.device("/GPU:0" if gpu else "/CPU:0"):
            keras.utils.set_random_seed(options.seed)
            prepared = prepare(options, say)
            summary, network = learnt(prepared, folder, gpu, say)
            if test:
                with prepared.side.phases.measured("test"):
                    reformulator = Reformulator(prepared.side, network)
                    summary["test"] = judged(reformulator, folder.path)
    except BaseException as error:
        if not any(folder.path.iterdir()):
            folder.path.rmdir()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(saved_where(folder.path)) from None
        raise
    summary["total_seconds"] = time.perf_counter() - began
    seconds = dict(prepared.side.phases.seconds)
    del seconds[COLLECTION]
    seconds |= {**summary["loop_profile"]["seconds"], "profile": seconds.pop("profile")}
    summary["profile"] = profile(seconds, summary["total_seconds"])
    cache = prepared.side.cache
    summary["embedding_cache"] = {
        "hits": cache.hits,
        "misses": cache.misses,
        "hit_rate": cache.hit_rate,
    }
    write_profile(folder.path, summary)
    folder.write_result(summary)
    return summary


def prepare(options: ReformulationOptions, say: Say) -> Prepared:
    """Collection, index, candidates and tables; the judgements of train and dev are read."""
    side = SearchSide.prepared(options, ("train", "dev"), Phases(say))
    train_queries, dev_queries = side.queries("train"), side.queries("dev")
    judged_queries = [query for query in train_queries if query.judged]
    for split, found in (("train", judged_queries), ("dev", dev_queries)):
        if not found:
            raise ValueError(
                f"no query of the {split} split can be used ({skip_report(side.skipped[split])}): "
                "training needs queries with a candidate term and a relevant document."
            )
    counts = {
        "train": len(side.collection.split("train")),
        "dev": len(side.collection.split("dev")),
        "train_skipped": len(side.skipped["train"]),
        "dev_skipped": len(side.skipped["dev"]),
        "train_without_relevant": len(train_queries) - len(judged_queries),
    }
    table, dev, counts["train_too_wide"] = searched(side, judged_queries, dev_queries, say)
    say(
        f"training queries: {len(table.number)} of {counts['train']}; "
        f"{skip_report(side.skipped['train'])}; {counts['train_without_relevant']} without a "
        f"relevant document, {counts['train_too_wide']} with more than "
        f"{options.training.max_pool_documents} documents that matter"
    )
    say(f"dev queries: {len(dev_queries)} of {counts['dev']}; {skip_report(side.skipped['dev'])}")
    return Prepared(side, table, dev, counts)


def learnt(
    prepared: Prepared, folder: RunFolder, gpu: bool, say: Say
) -> tuple[dict[str, Any], keras.Model]:
    """Warm start and PPO; the run's summary, and the network that gains most on dev queries."""
    side, counts = prepared.side, dict(prepared.counts)
    options, phases = side.options, side.phases
    network, env, warm_gain = warm_start(prepared, say)
    counts["train_not_improvable"] = len(prepared.table.number) - env.queries
    if gpu and options.training.use_amp:
        network = half_precision(network, env, options)
    elif options.training.use_amp:
        say("half precision does not pay on a CPU: it is off")
    warm_weights = network.get_weights()
    clock = LoopClock()
    with phases.measured(COLLECTION):
        result = reinforced(prepared, env, network, folder, gpu, say, clock)
    with phases.measured("profile"):
        apart = loop_profile(clock, result.summary, phases.seconds[COLLECTION])
    clock.forget()
    trained_gain = result.evaluation.return_mean
    if warm_gain > trained_gain:
        say(
            f"kept the network from before PPO: dev gain {warm_gain:+.4f}, "
            f"and {trained_gain:+.4f} after PPO"
        )
        network.set_weights(warm_weights)
        save_network(network, folder.path)
        result.summary["evaluation"] |= played(network, prepared.dev)
    summary = {
        **result.summary,
        "collection": options.collection,
        "metric": options.retrieval.metric,
        "queries": counts,
        "loop_profile": apart._asdict(),
        "search": search_figures(env),
        "collect_batch_size": result.agent.cfg.num_envs,
        "dev_gain": {
            "before_ppo": warm_gain,
            "after_ppo": trained_gain,
            "kept": max(warm_gain, trained_gain),
        },
    }
    return summary, network


def played(network: keras.Model, env: World) -> dict[str, float]:
    """An evaluation's figures of one greedy episode for each query."""
    actions, gains = GreedyPlayer(network, env).play()
    lengths = np.minimum((actions != STOP).sum(axis=1) + 1, env.settings.max_terms)
    return {
        "return_mean": float(gains.mean()),
        "return_std": float(gains.std()),
        "length_mean": float(lengths.mean()),
    }


def warm_start(prepared: Prepared, say: Say) -> tuple[keras.Model, World, float]:
    """The network after the warm start, PPO's environment, and the gain on dev queries so far."""
    side, table = prepared.side, prepared.table
    options, training = side.options, side.options.training
    env = environment(table)
    network = make_scorer(env, options)
    with side.phases.measured("one-step gains"):
        if training.warm_start_epochs:
            data = all_gain_examples(env, options)
        else:
            data = gain_examples(env, 1, options.seed)
    with side.phases.measured("warm start"):

        def watch(row: dict[str, float]) -> None:
            if row["epoch"] == 1 or row["epoch"] % 10 == 0:
                say(f"warm start: pass {row['epoch']}, dev gain {row['dev_gain']:+.4f}")

        rows = warm_started(network, data, prepared.dev, options, watch)
    if rows:
        gain = max(row["dev_gain"] for row in rows)
    else:
        gain = played(network, prepared.dev)["return_mean"]
    if training.only_improvable:
        first = data.added == 0
        best = np.full(env.queries, -np.inf)
        np.maximum.at(best, data.query[first], data.gain[first].max(axis=1))
        kept = np.flatnonzero(best > IMPROVED)
        if not len(kept):
            raise ValueError(
                f"no candidate improves any of the {env.queries} training queries, so there is "
                "nothing to learn: change candidates, weight or metric."
            )
        say(f"PPO trains with {len(kept)} of {env.queries} queries: a candidate improves those")
        if len(kept) < env.queries:
            env = environment(some_of(table, kept))
    return network, env, gain


def half_precision(network: keras.Model, env: World, options: ReformulationOptions) -> keras.Model:
    """The same network computing in half precision; the warm start has no loss scaling."""
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy(HALF)
    try:
        half = make_scorer(env, options)
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    half.set_weights(network.get_weights())
    return half


def reinforced(
    prepared: Prepared,
    env: World,
    network: keras.Model,
    folder: RunFolder,
    gpu: bool,
    say: Say,
    clock: LoopClock,
) -> TrainResult:
    """Train with PPO; where memory does not suffice, with half as many queries at once."""
    options, begin = prepared.side.options, network.get_weights()
    half = gpu and options.training.use_amp
    while True:
        cfg = dataclasses.replace(
            ppo_config(options, env.queries, prepared.dev.queries),
            device="gpu" if gpu else "cpu",
            precision=HALF if half else "float32",
        )
        watchers = [
            SaveBeforePPO(prepared.side),
            DevLines(say, options.retrieval.metric),
            clock,
        ]
        played_in = for_trainer(env, cfg.num_envs)
        dev = for_trainer(prepared.dev, prepared.dev.queries, in_order=True)
        try:
            return Trainer(folder.path, progress=False).train_ppo(
                cfg, played_in, watchers, model=network, evaluation_env=dev
            )
        except tf.errors.ResourceExhaustedError:
            if cfg.num_envs == 1:
                raise ValueError(
                    "memory does not suffice for one query at a time: lower max_pool_documents, "
                    "or buffer_size and batch_size."
                ) from None
        # The error is gone here, and with it what it held of the failed program.
        clock.forget()
        gc.collect()
        smaller = cfg.num_envs // 2
        say(f"out of memory with collect_batch_size {cfg.num_envs}: PPO begins anew with {smaller}")
        training = dataclasses.replace(options.training, collect_batch_size=smaller)
        options = dataclasses.replace(options, training=training)
        network.set_weights(begin)
        emptied(folder.path)


def saved_options(side: SearchSide) -> ReformulationOptions:
    """The options with what they depended on: the collection's full path, the chosen encoder."""
    options, encoder = side.options, side.cache.encoder
    if options.collection != BUILTIN:
        options = dataclasses.replace(options, collection=str(Path(options.collection).resolve()))
    if options.retrieval.encoder == "auto":
        name = "hash" if encoder.identity.startswith("hash") else "wordllama"
        retrieval = dataclasses.replace(options.retrieval, encoder=name)
        options = dataclasses.replace(options, retrieval=retrieval)
    return options


def saved_where(path: Path) -> str:
    """What to say to somebody who interrupted a run."""
    if not (path / BEST).is_file():
        return "Training had not begun: nothing is saved."
    return (
        f"The run is saved in {path}; `kytolly reformulate {path} QUERY` uses the network that "
        "gained most so far."
    )


def emptied(folder: Path) -> None:
    """Remove what a failed attempt left in the run's folder, which was empty before."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
