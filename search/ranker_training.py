"""Training a re-ranker: from a collection to a run with its gain over the first search."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kytolly.record.checkpoint import BEST
from kytolly.record.network_file import load_network
from kytolly.record.run_folder import RunFolder
from kytolly.search.chain import PRETRAINED, AgentSearch, load_agent
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.index.collection import warn_of_shared_queries
from kytolly.search.index.corpus import available_splits, load_collection, resolved_source
from kytolly.search.index.metrics import paired_bootstrap
from kytolly.search.index.trained_documents import TrainedDocuments
from kytolly.search.text.ranker import Ranker, RankingTask
from kytolly.search.text.ranking_data import METRIC, mixed_scores, ndcg
from kytolly.search.text.vocabulary import require_byte_pairs
from kytolly.trainer import Trainer


def train_ranker(
    cfg: RankerConfig,
    collection: str | Path,
    log_dir: str | Path | None = None,
    *,
    cb: Sequence[Any] = (),
    resume: bool = False,
    progress: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """Train a re-ranker, choose its weight beside a search on dev, and measure it on test.

    Args:
        cfg: How to search, perhaps with an agent, to read and to learn.
        collection: A collection, as `load_collection` takes it, with train and dev queries. Where
            it has no test queries, the gain is not measured.
        log_dir: The run's folder; None: a new one.
        cb: Callbacks, ours and Keras's.
        resume: Continue the run in `log_dir`.
        progress: Show a progress bar on standard error.

    Returns:
        The contents of `result.json`, and the same as lines of text.

    Raises:
        ValueError: The collection or a setting does not fit.
        ModuleNotFoundError: wordllama is not installed.
    """
    require_byte_pairs()
    first = None  # the one that cfg names
    if cfg.agent is not None:
        agent = cfg.agent if cfg.agent == PRETRAINED else str(Path(cfg.agent).resolve())
        cfg = dataclasses.replace(cfg, agent=agent)
        first = AgentSearch(load_agent(agent, collection))
    splits = ["train", "dev", *({"test"} & set(available_splits(collection)))]
    judged = load_collection(collection, splits)
    warn_of_shared_queries(judged)
    task = RankingTask(judged, cfg, first)
    if progress:
        print(evaluation_line(task), file=sys.stderr, flush=True)
    result = Trainer(log_dir, progress).train_supervised(cfg, task, cb, resume=resume)
    result.require_written()
    folder = Path(result.run_dir)
    network = load_network(folder / BEST)
    chosen = task.choose_weight(network)
    where, identity = resolved_source(str(collection)), task.first.identity
    documents = TrainedDocuments.of_texts(task.collection.texts)
    ranker = Ranker(network, task.vocabulary, chosen.weight, cfg, where, identity, documents)
    ranker.save(folder)
    summary = {**result.summary, "first_search": task.first.name, "choice": chosen._asdict()}
    if "test" in splits:
        summary["test"] = measure_test(task, network, chosen.weight)
    RunFolder(folder).write_result(summary)
    return summary, result_lines(summary)


def evaluation_line(task: RankingTask) -> str:
    """The dev queries that an evaluation's nDCG is of, for the reader of the progress display."""
    watched, choosing = len(task.watched.queries), len(task.choosing.queries)
    total = watched + choosing
    return (
        f"{task.name}: evaluation ndcg is {METRIC} of {watched:,} of the {total:,} dev "
        f"queries with a relevant document, with the best weight for them; the other {choosing:,} "
        f"choose the weight beside {task.first.name}"
    )


def measure_test(task: RankingTask, network: Any, weight: float) -> dict[str, float]:
    """NDCG@10 of the test queries, first and re-ranked, and the gain with its interval."""
    rankings = task.search("test")
    scores, before = task.scores(network, rankings), ndcg(rankings, rankings.scores)
    after = ndcg(rankings, mixed_scores(rankings.scores, scores, weight))
    gain, low, high = paired_bootstrap(after.tolist(), before.tolist())
    return {
        "queries": len(before),
        "first": float(before.mean()),
        "network_alone": float(ndcg(rankings, scores).mean()),
        "re_ranked": float(after.mean()),
        "gain": gain,
        "low": low,
        "high": high,
    }


def result_lines(summary: dict[str, Any]) -> list[str]:
    """The choice and the test metrics as text."""
    choice, name = summary["choice"], summary["first_search"]
    if choice["weight"]:
        line = f"weight {choice['weight']:g} beside {name}: {METRIC} +{choice['gain']:.4f}"
    else:
        line = f"weight 0: the network is no better than {name} alone beyond chance"
    lines = [f"{line}, on {choice['queries']} dev queries (chance {choice['chance']:.3f})"]
    if test := summary.get("test"):
        lines.append(
            f"test, {test['queries']} queries: {METRIC} of {name} {test['first']:.4f}, re-ranked "
            f"{test['re_ranked']:.4f}, gain {test['gain']:+.4f} (95% from {test['low']:+.4f} to "
            f"{test['high']:+.4f}); network alone {test['network_alone']:.4f}"
        )
    return lines
