"""The result of a run of query reformulation: test metrics, and where its time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.reformulation.reformulator import Reformulator, trec_run
from kytolly.retrieval.metrics import METRICS, paired_bootstrap, per_query
from kytolly.retrieval.trec import write_run

RUN_DEPTH = 1_000  # documents of a query in a run file
UNCHANGED = 1e-6  # difference of a metric; less is rounding
REST = "other"


def test_metrics(reformulator: Reformulator, run_dir: Path) -> dict[str, Any]:
    """Evaluate a trained network on the test queries; their judgments are used here, not before.

    Every query with judgments counts: one that cannot be reformulated keeps its ranking.

    Args:
        reformulator: The reformulator with the network, and a collection with a test split.
        run_dir: Receives `test_bm25.run` and `test_reformulated.run`.

    Returns:
        Means of each metric for both systems, their difference with its 95% interval, and the
        numbers of queries that gained and lost.
    """
    options, collection = reformulator.side.options, reformulator.side.collection
    numbers, qrels = collection.split("test"), collection.judgments["test"]
    plans = reformulator.plans(collection, numbers)
    rankings = reformulator.rankings(collection, numbers, plans, RUN_DEPTH)
    metrics = tuple(dict.fromkeys((*METRICS, options.retrieval.metric)))
    values = []
    for name, hits in zip(("bm25", "reformulated"), rankings, strict=True):
        run = trec_run(collection, numbers, hits)
        write_run(run_dir / f"test_{name}.run", run, name)
        values.append(per_query(qrels, run, metrics))
    found: dict[str, Any] = {
        "queries": len(numbers),
        "unchanged": sum(plan.reason is not None for plan in plans),
        "without_relevant": sum(
            not any(g > 0 for g in grades.values()) for grades in qrels.values()
        ),
    }
    for metric in metrics:
        before, after = ([own[metric][query] for query in qrels] for own in values)
        gain, low, high = paired_bootstrap(after, before)
        found[metric] = {
            "bm25": float(np.mean(before)),
            "reformulated": float(np.mean(after)),
            "difference": gain,
            "low": low,
            "high": high,
            "gained": sum(b > a + UNCHANGED for a, b in zip(before, after, strict=True)),
            "lost": sum(b < a - UNCHANGED for a, b in zip(before, after, strict=True)),
        }
    return found


def phase_rows(seconds: Mapping[str, float], total: float) -> dict[str, dict[str, float]]:
    """Phase -> its seconds and share of the whole run; "other" is what no phase has."""
    rest = max(total - sum(seconds.values()), 0.0)
    return {
        name: {"seconds": spent, "share": spent / total}
        for name, spent in {**seconds, REST: rest}.items()
    }


def write_phases(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write the seconds of the phases for TensorBoard, beside the run's metrics."""
    metrics = {
        f"phase_{kind}/{name.replace(' ', '_')}": value
        for name, row in summary["phases"].items()
        for kind, value in row.items()
    }
    for name, rate in rates(summary).items():
        metrics[f"rates/{name.replace(' ', '_')}"] = rate
    writer = tf.summary.create_file_writer(str(run_dir), filename_suffix=".phases")
    with writer.as_default(step=summary["env_steps"]):
        for name, value in metrics.items():
            tf.summary.scalar(name, value)
    writer.close()


def rates(summary: Mapping[str, Any]) -> dict[str, float]:
    """Device utilization and hit rates of caches, if they are known; all from 0 to 1."""
    found = {
        "device utilization": summary.get("device_utilization"),
        "embedding cache hit rate": summary["embedding_cache"]["hit_rate"],
    }
    return {name: rate for name, rate in found.items() if rate is not None}


def lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """A run's result for a reader."""
    for kind in ("fused", "plain") if summary["fusion"] else ("plain",):
        one = summary["choices"][kind]
        base = f"BM25 + {summary['fusion']:g} cosines" if kind == "fused" else "BM25"
        yield (
            f"Dev gain in {summary['metric']} over {base}: {one['dev_gain']:+.4f} "
            f"({one['changed']:.0%} of the queries are changed, {one['tried']} choices tried, "
            f"chance {one['chance']:.3f})"
        )
    yield f"Network: {summary['network']}; {summary['env_steps']:,} env steps of PPO"
    counts = summary["queries"]
    for split in ("train", "dev"):
        yield (
            f"Queries for {split}: {counts[split]:,}, of which {counts[f'{split}_skipped']} have "
            f"no token or candidate, {counts[f'{split}_without_relevant']} no relevant document"
        )
    if "test" in summary:
        yield from test_lines(summary["test"])
    yield "Time:"
    for name, row in summary["phases"].items():
        yield f"  {name:<30} {row['seconds']:>8.1f} s {row['share']:>6.1%}"
    yield from loop_lines(summary)
    cache = summary["embedding_cache"]
    yield (
        f"Embedding cache: {cache['hits']:,} of {cache['hits'] + cache['misses']:,} texts were "
        f"there ({cache['hit_rate']:.1%})"
    )
    yield f"Run: {summary['run_dir']}"


def loop_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Device utilization, and with a profile what its rows mean."""
    busy, profile = summary.get("device_utilization"), summary.get("loop_profile")
    yield f"Device utilization in the loop: {'unknown' if busy is None else f'{busy:.0%}'}"
    if profile is None:
        return
    if profile["scale"] is not None:
        yield (
            "  The loop is one program. Its forward, search and update were timed apart, and their "
            f"times scaled by {profile['scale']:.2f} to add up to the time of the loop"
        )
    moved = profile["transferred_bytes"]
    copied = f"{moved / 2**20:,.1f} MiB" if moved else "none, they are in the processor's memory"
    yield f"  Tables copied to the device: {copied}"


def test_lines(test: Mapping[str, Any]) -> Iterator[str]:
    """Test metrics for a reader."""
    yield (
        f"Test: {test['queries']:,} queries, {test['unchanged']} left unchanged, "
        f"{test['without_relevant']} without a relevant document"
    )
    for name, row in test.items():
        if isinstance(row, dict):
            yield (
                f"  {name}: BM25 {row['bm25']:.4f}, reformulated {row['reformulated']:.4f}, "
                f"difference {row['difference']:+.4f} (95% interval {row['low']:+.4f} to "
                f"{row['high']:+.4f}; {row['gained']} gained, {row['lost']} lost)"
            )
