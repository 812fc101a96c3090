"""Trains the same rewriter in several ways, by turns, and prints seconds of one update as JSON.

`kytolly benchmark text` starts this program. The network has 2 x 2 LSTM layers of 256 units, and an
update learns from 64 pairs of a query and the text of a relevant document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

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
        self.vocabulary: Any = argparse.Namespace(size=words)


class StepwiseTask(PairsTask):
    """The same, with a draw before each step of the decoder, which sees its own last guess."""

    def loss(
        self, network: Any, batch: Mapping[str, tf.Tensor], cfg: Any
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Cross-entropy of a batch, decoded one step after the other."""
        source, target, seed = batch["source"], batch["target"], batch["seed"][0]
        memory, found = network.encode(source), []
        token, states = tf.fill([source.shape[0]], BEGIN), memory.states
        for place in range(int(target.shape[1] or 0)):
            logits, states = network.step(token, states, memory)
            found.append(logits)
            own = tf.random.stateless_uniform([], seed + [3, place]) < cfg.scheduled_sampling
            token = tf.where(own, most_probable(logits), target[:, place])
        logits = tf.stack(found, axis=1)
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


class Side(NamedTuple):
    """A way to train; its runs have one update in an epoch as often as the shares say."""

    name: str
    runs: list[Run]
    shares: list[float]
    padding: float = 0.0


def make_config(quick: bool, **changes: Any) -> RewriterConfig:
    """The settings of all sides but for what one of them changes."""
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


def epoch_clock(side: Side, least: int) -> Clock:
    """Seconds of the mean update of an epoch."""
    clocks = [seconds_per_update(run, least) for run in side.runs]
    total = sum(side.shares)
    pairs = list(zip(clocks, side.shares, strict=True))
    wall, cpu = (sum(getattr(c, name) * s for c, s in pairs) / total for name in Clock._fields)
    return Clock(wall, cpu)


def measure(sides: list[Side], repeats: int, least: int) -> list[dict[str, Any]]:
    """Let the sides of a comparison take turns; medians of each."""
    for side in sides:
        for run in side.runs:
            run()  # compiles
        print(side.name, "is ready", file=sys.stderr, flush=True)
    turns = []
    for _ in range(repeats):
        turns.append([epoch_clock(side, least) for side in sides])
        print([round(clock.cpu, 4) for clock in turns[-1]], file=sys.stderr, flush=True)
    return [
        {
            "name": side.name,
            "wall_seconds": statistics.median(clock.wall for clock in clocks),
            "cpu_seconds": statistics.median(clock.cpu for clock in clocks),
            "padding_share": side.padding,
        }
        for side, clocks in zip(sides, zip(*turns, strict=True), strict=True)
    ]


def epoch_sides(pairs: Pairs, words: int, quick: bool) -> list[Side]:
    """All pairs: in buckets, at one length, and as such networks are often trained."""
    cfg = make_config(quick)
    buckets, padding = make_buckets(pairs, cfg, bucket_count(quick))
    (whole,), fixed_padding = make_buckets(pairs, cfg, 1)
    runs = [make_run(PairsTask(bucket.pairs, words), cfg) for bucket in buckets]
    shares = [float(bucket.batches) for bucket in buckets]
    return [
        Side(f"{len(buckets)} buckets", runs, shares, padding),
        Side("one length", [make_run(PairsTask(whole.pairs, words), cfg)], [1.0], fixed_padding),
        Side("old way", [make_old_run(pairs, words, cfg)], [1.0]),
    ]


def bucket_sides(pairs: Pairs, words: int, quick: bool) -> list[Side]:
    """The pairs of the largest bucket, all batches of one shape: each side differs in one way."""

    def side(name: str, make: Any = make_run, kind: Any = PairsTask, **changes: Any) -> Side:
        return Side(name, [make(kind(pairs, words), make_config(quick, **changes))], [1.0])

    small = {"batch_size": make_config(quick).batch_size // 4, "gradient_accumulation": 4}
    return [
        side("as it is"),
        side("host batches", tables="host"),
        side("graph executor", xla=False),
        side("eager", make_eager_run),
        side("a draw per step", kind=StepwiseTask),
        side("mixed_bfloat16", precision="mixed_bfloat16"),
        side("4 parts", **small),
        side("1 update a call", updates_per_call=1),
    ]


def bucket_count(quick: bool) -> int:
    """Buckets of the pairs."""
    return 2 if quick else 4


def tokens_of(pairs: Pairs, cfg: RewriterConfig) -> float:
    """Mean tokens of a batch, without padding."""
    return sum(float(column.lengths.mean()) for column in pairs.values()) * cfg.batch_size


def main(argv: list[str] | None = None) -> int:
    """Measure the comparisons and print the result as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--collection", default="builtin", help="folder in the BEIR layout, or builtin")
    add("--repeats", type=int, default=3, help="turns behind each median")
    add("--only", choices=("epoch", "bucket"), help="one of the two comparisons")
    add("--updates", type=int, default=CALL, help="updates of each turn, at least")
    add("--export", help="write batches and weights to this file, and measure nothing")
    add("--quick", action="store_true", help="a trial run")
    args = parser.parse_args(argv)
    pairs, words = load_pairs(args.collection, args.quick)
    cfg = make_config(args.quick)
    buckets, _ = make_buckets(pairs, cfg, bucket_count(args.quick))
    largest = max(buckets, key=lambda bucket: bucket.batches).pairs
    found: dict[str, Any] = {"pairs": len(pairs["source"].lengths), "words": words}
    if args.export:
        tokens, loss = tokens_of(pairs, cfg), export(buckets, words, cfg, args.export)
        print(json.dumps({**found, "tokens_per_update": tokens, "loss": loss}))
        return 0
    for name, part, make in (("epoch", pairs, epoch_sides), ("bucket", largest, bucket_sides)):
        if args.only in (None, name):
            sides = measure(make(part, words, args.quick), args.repeats, args.updates)
            found[name] = {"tokens_per_update": tokens_of(part, cfg), "sides": sides}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
