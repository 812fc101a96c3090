"""Trains the same rewriter in several ways, by turns, and prints seconds of one update as JSON.

`kytolly benchmark text` starts this program. The network has 2 x 2 LSTM layers of 256 units, and an
update learns from 64 pairs of a query and the text of a relevant document.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.benchmarks.program import Program, Result, run_program
from kytolly.config.fields import setting
from kytolly.loop.supervised import Learner, SupervisedLoop
from kytolly.policy.supervised import cross_entropy
from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.index.corpus import load_collection
from kytolly.search.text.buckets import BucketBatchSampler
from kytolly.search.text.rewriter import RewriterTask
from kytolly.search.text.rows import Ragged, column_matrix
from kytolly.search.text.teacher_forcing import most_probable, right_tokens
from kytolly.search.text.vocabulary import BEGIN, PADDING

BATCH, CALL = 64, 16  # rows of an update, and updates of a call
QUICK = {"units": 16, "batch_size": 4}
EXPORTED = 4  # batches of each bucket that another library gets
RATE, DECAY, CLIP = 2e-3, 0.01, 1.0  # of AdamW everywhere
Pairs = Mapping[str, Ragged]
Run = Callable[[], int]  # makes some updates, waits for them, and says how many


class PairsTask(RewriterTask):
    """The training pairs of a rewriter, without what evaluates it.

    Args:
        pairs: Sources and targets.
        words: Size of the vocabulary.
    """

    def __init__(self, pairs: Pairs, words: int):
        self.pairs = {"train": dict(pairs)}
        self.vocabulary: Any = SimpleNamespace(size=words)


class StepwiseTask(PairsTask):
    """The same, with a draw before each step of the decoder, which sees its own last guess."""

    def loss(
        self, network: Any, batch: Mapping[str, tf.Tensor], cfg: RewriterConfig
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Cross-entropy of a batch, decoded one step after the other."""
        source, target, seed = batch["source"], batch["target"], batch["seed"][0]
        memory, steps = network.encode(source), []
        token, states = tf.fill([source.shape[0]], BEGIN), memory.states
        for place in range(int(target.shape[1] or 0)):
            logits, states = network.step(token, states, memory)
            steps.append(logits)
            guesses = tf.random.stateless_uniform([], seed + [3, place]) < cfg.scheduled_sampling
            token = tf.where(guesses, most_probable(logits), target[:, place])
        logits = tf.stack(steps, axis=1)
        loss = cross_entropy(logits, target, mask=target != PADDING)
        right, count = tf.unstack(tf.reduce_sum(right_tokens(logits, target), axis=0))
        return loss, {"token_accuracy": right / tf.maximum(count, 1.0)}


class Bucket(NamedTuple):
    """Pairs of similar length, and the batches of an epoch in which they have their turn."""

    pairs: Pairs
    batches: int


class Clock(NamedTuple):
    """Seconds of one update."""

    wall: float
    cpu: float


class Contender(NamedTuple):
    """A way to train; its runs have one update in an epoch as often as the shares say."""

    name: str
    runs: list[Run]
    shares: list[float]
    padding: float = 0.0


def make_config(quick: bool, **changes: object) -> RewriterConfig:
    """The settings of all contenders but for what one of them changes."""
    settings = {
        "target": "texts",
        "pretrained": False,
        "batch_size": BATCH,
        "num_buckets": 1,
        "updates_per_call": CALL,
        "tables": "device",
        "total_updates": 10**6,
        "learning_rate": RATE,
        "weight_decay": DECAY,
        "max_grad_norm": CLIP,
        **(QUICK if quick else {}),
    }
    return RewriterConfig(**{**settings, **changes})


def make_run(task: PairsTask, cfg: RewriterConfig) -> Run:
    """One call of our loop."""
    loop = SupervisedLoop(Learner(task, cfg))

    def run() -> int:
        return int(getattr(loop.run(cfg.updates_per_call), "updates", 0))

    return run


def make_eager_run(task: PairsTask, cfg: RewriterConfig) -> Run:
    """One update, operation by operation."""
    learner = Learner(task, cfg)

    def run() -> int:
        call = learner.rows.call(learner.updates, 1)
        batch = learner.rows.batch(call.bucket, call.arguments, tf.constant(call.first))
        seeds = tf.constant([[cfg.seed, learner.updates]], tf.int32)
        learner.policy.update({**batch, "seed": seeds})
        return 1

    return run


def make_old_run(pairs: Pairs, words: int, cfg: RewriterConfig) -> Run:
    """One update as such networks are often trained: eager, each batch sorted and padded alone."""
    import keras

    task = StepwiseTask(pairs, words)
    network, random = task.make_network(cfg), np.random.default_rng(0)
    adamw = keras.optimizers.AdamW(RATE, weight_decay=DECAY, global_clipnorm=CLIP)
    lengths = np.stack([column.lengths for column in pairs.values()], axis=1)

    def run() -> int:
        rows = random.integers(len(lengths), size=cfg.batch_size)
        rows = rows[np.argsort(-lengths[rows, 0])]
        batch = column_matrix(pairs, rows, lengths[rows].max(axis=0).tolist())
        tensors = {name: tf.constant(values) for name, values in batch.items()}
        seed = tf.constant(random.integers(2**31, size=[1, 2]), tf.int32)
        with tf.GradientTape() as tape:
            loss, _ = task.loss(network, {**tensors, "seed": seed}, cfg)
        variables = [weight.value for weight in network.trainable_variables]
        adamw.apply(tape.gradient(loss, variables), network.trainable_variables)
        return 1

    return run


# --- data ----------------------------------------------------------------------------------


def load_pairs(collection: str, quick: bool) -> tuple[Pairs, int]:
    """The training pairs of a collection, and the size of their vocabulary."""
    task = RewriterTask(load_collection(collection, ["train"]), make_config(quick))
    return task.pairs["train"], task.vocabulary.size


def make_buckets(pairs: Pairs, cfg: RewriterConfig, count: int) -> tuple[list[Bucket], float]:
    """The pairs in buckets, and the share of padding."""
    lengths = np.stack([column.lengths for column in pairs.values()], axis=1)
    sampler = BucketBatchSampler(lengths, cfg.batch_size, count)
    buckets = [
        Bucket(
            {name: column.part(rows) for name, column in pairs.items()},
            -(-len(rows) // cfg.batch_size),
        )
        for rows in sampler.buckets
    ]
    return buckets, sampler.padding_share()


def export(buckets: list[Bucket], words: int, cfg: RewriterConfig, path: str) -> float:
    """Write batches and first weights for another library; returns the loss of the first batch.

    The loss has neither dropout nor scheduled sampling: there is nothing to draw.
    """
    plain = make_config(False, units=cfg.units, dropout=0.0, scheduled_sampling=0.0)
    task = PairsTask(buckets[0].pairs, words)
    network, saved = task.make_network(cfg), {}
    for number, bucket in enumerate(buckets):
        rows = np.arange(EXPORTED * cfg.batch_size) % len(bucket.pairs["source"].lengths)
        lengths = [int(column.lengths.max()) for column in bucket.pairs.values()]
        batches = column_matrix(bucket.pairs, rows.reshape(EXPORTED, -1), lengths)
        saved |= {f"{name}_{number}": values for name, values in batches.items()}
    batch = {name: tf.constant(saved[f"{name}_0"][0]) for name in buckets[0].pairs}
    loss, _ = task.loss(network, {**batch, "seed": tf.zeros([1, 2], tf.int32)}, plain)
    weights = {f"weight_{i:02}": w for i, w in enumerate(network.get_weights())}
    shares = [bucket.batches for bucket in buckets]
    np.savez(
        path, shares=shares, words=words, units=cfg.units, loss=float(loss), **saved, **weights
    )
    return float(loss)


# --- measuring -----------------------------------------------------------------------------


def seconds_per_update(run: Run, least: int) -> Clock:
    """Seconds of one of at least so many updates."""
    done, cpu, wall = 0, time.process_time(), time.perf_counter()
    while done < least:
        done += run()
    return Clock((time.perf_counter() - wall) / done, (time.process_time() - cpu) / done)


def epoch_clock(contender: Contender, least: int) -> Clock:
    """Seconds of the mean update of an epoch."""
    clocks = [seconds_per_update(run, least) for run in contender.runs]
    total = sum(contender.shares)
    pairs = list(zip(clocks, contender.shares, strict=True))
    wall, cpu = (sum(getattr(c, name) * s for c, s in pairs) / total for name in Clock._fields)
    return Clock(wall, cpu)


def measure(contenders: list[Contender], repeats: int, least: int) -> list[Result]:
    """Let the contenders of a comparison take turns; medians of each."""
    for contender in contenders:
        for run in contender.runs:
            run()  # compiles
        print(contender.name, "is ready", file=sys.stderr, flush=True)
    turns = []
    for _ in range(repeats):
        turns.append([epoch_clock(contender, least) for contender in contenders])
        print([round(clock.cpu, 4) for clock in turns[-1]], file=sys.stderr, flush=True)
    return [
        {
            "name": contender.name,
            "wall_seconds": statistics.median(clock.wall for clock in clocks),
            "cpu_seconds": statistics.median(clock.cpu for clock in clocks),
            "padding_share": contender.padding,
        }
        for contender, clocks in zip(contenders, zip(*turns, strict=True), strict=True)
    ]


def epoch_contenders(pairs: Pairs, words: int, quick: bool) -> list[Contender]:
    """All pairs: in buckets, at one length, and as such networks are often trained."""
    cfg = make_config(quick)
    buckets, padding = make_buckets(pairs, cfg, bucket_count(quick))
    (whole,), fixed_padding = make_buckets(pairs, cfg, 1)
    runs = [make_run(PairsTask(bucket.pairs, words), cfg) for bucket in buckets]
    shares = [float(bucket.batches) for bucket in buckets]
    return [
        Contender(f"{len(buckets)} buckets", runs, shares, padding),
        Contender(
            "one length", [make_run(PairsTask(whole.pairs, words), cfg)], [1.0], fixed_padding
        ),
        Contender("old way", [make_old_run(pairs, words, cfg)], [1.0]),
    ]


def bucket_contenders(pairs: Pairs, words: int, quick: bool) -> list[Contender]:
    """The pairs of the largest bucket, all batches of one shape: each differs in one way."""

    def contender(
        name: str,
        make: Callable[[PairsTask, RewriterConfig], Run] = make_run,
        kind: type[PairsTask] = PairsTask,
        **changes: object,
    ) -> Contender:
        return Contender(name, [make(kind(pairs, words), make_config(quick, **changes))], [1.0])

    quarter = make_config(quick).batch_size // 4
    return [
        contender("as it is"),
        contender("host batches", tables="host"),
        contender("graph executor", xla=False),
        contender("eager", make_eager_run),
        contender("a draw per step", kind=StepwiseTask),
        contender("mixed_bfloat16", precision="mixed_bfloat16"),
        contender("4 parts", batch_size=quarter, gradient_accumulation=4),
        contender("1 update a call", updates_per_call=1),
    ]


def bucket_count(quick: bool) -> int:
    """Buckets of the pairs."""
    return 2 if quick else 4


def tokens_of(pairs: Pairs, cfg: RewriterConfig) -> float:
    """Mean tokens of a batch, without padding."""
    return sum(float(column.lengths.mean()) for column in pairs.values()) * cfg.batch_size


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """The comparisons, and their length."""

    collection: str = setting("builtin", "folder in the BEIR layout, or builtin")
    repeats: int = setting(3, "turns behind each median")
    only: Literal["all", "epoch", "bucket"] = setting("all", "one of the two comparisons")
    updates: int = setting(CALL, "updates of each turn, at least")
    export: str | None = setting(None, "write batches and weights here, and measure nothing")
    quick: bool = setting(False, "a trial run")


def run(options: TrainingOptions) -> Result:
    """Measure the comparisons, or export what another library measures."""
    pairs, words = load_pairs(options.collection, options.quick)
    cfg = make_config(options.quick)
    buckets, _ = make_buckets(pairs, cfg, bucket_count(options.quick))
    largest = max(buckets, key=lambda bucket: bucket.batches).pairs
    result: Result = {"pairs": len(pairs["source"].lengths), "words": words}
    if options.export:
        loss = export(buckets, words, cfg, options.export)
        return {**result, "tokens_per_update": tokens_of(pairs, cfg), "loss": loss}
    comparisons = {"epoch": (pairs, epoch_contenders), "bucket": (largest, bucket_contenders)}
    for name, (part, make) in comparisons.items():
        if options.only in ("all", name):
            contenders = make(part, words, options.quick)
            medians = measure(contenders, options.repeats, options.updates)
            result[name] = {"tokens_per_update": tokens_of(part, cfg), "contenders": medians}
    return result


PROGRAM = Program(run, (TrainingOptions,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
