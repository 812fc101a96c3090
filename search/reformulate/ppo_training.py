"""PPO on queries: its config, what watches it, and what happens if memory does not suffice."""

from __future__ import annotations

import dataclasses
import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import keras
import tensorflow as tf

from kytolly.callback.base import Callback, TrainState
from kytolly.config.ppo import PPOConfig
from kytolly.loop.profile import RunKeeper
from kytolly.loop.recovery import OutOfMemory
from kytolly.machine.memory import check_memory
from kytolly.record.checkpoint import save_network
from kytolly.search.index.corpus import resolved_source
from kytolly.search.index.tokens import AUTO, NONE, stop_word_lists
from kytolly.search.index.trained_documents import TrainedDocuments
from kytolly.search.reformulate.device_env import DeviceQueries
from kytolly.search.reformulate.network import HALF
from kytolly.search.reformulate.options import ReformulationOptions, write_options
from kytolly.search.reformulate.reformulator import OPTIONS_FILE
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.timing import LoopClock
from kytolly.trainer import Trainer
from kytolly.training_run import TrainResult

Say = Callable[[str], None]
COLLECTION = "batched collection and update"


class SaveBeforePPO(Callback):
    """Makes a run usable before PPO's first evaluation: search context, network of the warm start.

    Args:
        context: Search context of the run.
    """

    def __init__(self, context: SearchContext):
        self.context = context

    def on_train_begin(self, state: TrainState) -> None:
        """Write them."""
        save_search(self.context, state.run_dir)
        save_network(state.network, state.run_dir)


class EvaluationLines(Callback):
    """A line for each evaluation.

    Args:
        say: Receives the lines.
        metric: The metric whose gain evaluations measure.
    """

    def __init__(self, say: Say, metric: str):
        self.say, self.metric = say, metric

    def on_evaluation(self, state: TrainState) -> None:
        """Say how far the run is."""
        if state.evaluation is None:
            return
        rollout = state.config.env_steps_per_iteration
        total = -(-state.config.total_env_steps // rollout) * rollout  # rollouts are whole
        speed = state.metrics.get("env_steps_per_second", 0.0)
        left = (total - state.env_steps) * state.wall_seconds / max(state.env_steps, 1)
        self.say(
            f"{COLLECTION}: {state.env_steps:,} of {total:,} env steps, gain in {self.metric} "
            f"{state.evaluation.score:+.4f} (best {state.best_score:+.4f}), "
            f"{speed:,.0f} env steps/s, at most {left:.0f} s left"
        )


def ppo_config(options: ReformulationOptions, episodes: int, evaluation_episodes: int) -> PPOConfig:
    """PPO's config, with passes of `episodes` episodes, each of one env step."""
    training, agent = options.training, options.rl_agent
    num_envs = min(training.collect_batch_size, episodes)
    rollout = min(-(-training.episodes_per_update // num_envs), training.buffer_size // num_envs)
    rollout = max(1, rollout)
    rows = num_envs * rollout
    parts = training.gradient_accumulation
    if rows % parts:
        raise ValueError(
            f"gradient_accumulation ({parts}) does not divide the {rows:,} env steps of a rollout. "
            "Change it, or episodes_per_update."
        )
    updates = max(1, rows // (training.batch_size * parts))
    while rows % (updates * parts):
        updates -= 1
    return PPOConfig(
        total_env_steps=max(1, training.epochs * episodes),
        num_envs=num_envs,
        rollout_steps=rollout,
        epochs=training.update_epochs,
        num_minibatches=updates * parts,
        gradient_accumulation=parts,
        warmup_ratio=training.warmup_ratio,
        weight_decay=training.weight_decay,
        learning_rate=training.learning_rate,
        learning_rate_final=0.0,
        gae_lambda_value=None,
        average_share=0.0,
        gamma=1.0,
        normalize_rewards=False,
        clip_range=agent.clip_range,
        entropy_coef=agent.entropy_coef,
        value_coef=agent.value_coef,
        max_grad_norm=agent.max_grad_norm,
        target_kl=agent.target_kl,
        seed=options.seed,
        evaluation_episodes=evaluation_episodes,
        final_evaluation_episodes=evaluation_episodes,
        early_stop_patience=training.patience,
        early_stop_min_improvement=training.min_improvement,
        log_interval_env_steps=rows,
        evaluation_interval_env_steps=rows,
    )


def train_with_ppo(
    context: SearchContext,
    train: DeviceQueries,
    evaluation: DeviceQueries,
    network: keras.Model,
    folder: Path,
    gpu: bool,
    clock: LoopClock,
    keeper: RunKeeper | None = None,
) -> TrainResult:
    """Train a network with PPO; if memory does not suffice, with half as many queries at once.

    Args:
        context: Search context of the run.
        train: The queries to learn from.
        evaluation: The queries that decide when to stop, in order.
        network: A built `CandidateScorer`.
        folder: The run's folder, which is empty.
        gpu: Train on the first GPU instead of the CPU.
        clock: Measures how busy the device is.
        keeper: Keeps the loop for a profile; None: nothing is kept.

    Raises:
        ValueError: Memory does not suffice for one query at a time.
    """
    options, begin = context.options, network.get_weights()
    half, say = gpu and options.training.use_amp, context.phases.say
    kinds = len(train.fusions)
    while True:
        cfg = dataclasses.replace(
            ppo_config(options, kinds * train.num_queries, kinds * evaluation.num_queries),
            device="gpu" if gpu else "cpu",
            precision=HALF if half else "float32",
        )
        lines = EvaluationLines(say, options.retrieval.metric)
        callbacks = [SaveBeforePPO(context), lines, clock, *([keeper] if keeper else [])]
        if not gpu:
            check_rollout_memory(cfg, options, train)
        try:
            return Trainer(folder, progress=False).train_ppo(
                cfg, train, callbacks, model=network, evaluation_env=evaluation
            )
        except (tf.errors.ResourceExhaustedError, OutOfMemory):
            if cfg.num_envs == 1:
                raise ValueError(
                    "memory does not suffice for one query at a time: lower pool_documents, or "
                    "buffer_size and batch_size."
                ) from None
        # The error is gone here, and with it what it held of the failed program.
        if keeper:
            keeper.release()
        gc.collect()
        size, smaller = cfg.num_envs, cfg.num_envs // 2
        say(f"out of memory with collect_batch_size {size}: PPO starts again with {smaller}")
        training = dataclasses.replace(options.training, collect_batch_size=smaller)
        options = dataclasses.replace(options, training=training)
        network.set_weights(begin)
        clear_folder(folder)


def check_rollout_memory(
    cfg: PPOConfig, options: ReformulationOptions, queries: DeviceQueries
) -> None:
    """Refuse a rollout that exhausts the memory; a GPU says so itself."""
    rows, seen = cfg.num_envs * cfg.rollout_steps, cast(dict[str, tf.TensorSpec], queries.spec.obs)
    row = sum(part.dtype.size * part.shape.num_elements() for part in seen.values())
    hidden = 4 * queries.candidates * sum(options.rl_agent.hidden_units)
    pools = 4 * queries.candidates * queries.rules.pool_documents * cfg.num_envs
    check_memory(
        2 * rows * row + 2 * (rows // cfg.num_minibatches) * hidden + pools,
        f"a rollout of {rows:,} env steps with minibatches of {rows // cfg.num_minibatches:,}",
        "lower buffer_size, episodes_per_update, batch_size or candidates",
    )


def save_search(context: SearchContext, folder: Path) -> None:
    """Write what a run needs to be used, beside its network: how it searches, and in what."""
    write_options(folder / OPTIONS_FILE, resolved_options(context))
    context.save(folder)
    TrainedDocuments.of_texts(context.collection.texts).save(folder)


def resolved_options(context: SearchContext) -> ReformulationOptions:
    """The options with the full paths of files and the encoder that was chosen."""
    options = context.options
    retrieval = dataclasses.replace(
        options.retrieval, encoder=context.encoder_name, dimension=context.cache.encoder.dimension
    )
    if retrieval.stop_words not in (AUTO, NONE, *stop_word_lists()):
        path = str(Path(retrieval.stop_words).resolve())
        retrieval = dataclasses.replace(retrieval, stop_words=path)
    if retrieval.rewriter is not None:
        path = str(Path(retrieval.rewriter).resolve())
        retrieval = dataclasses.replace(retrieval, rewriter=path)
    collection = resolved_source(options.collection)
    return dataclasses.replace(options, collection=collection, retrieval=retrieval)


def clear_folder(folder: Path) -> None:
    """Remove everything in the run's folder: what a failed attempt left."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
