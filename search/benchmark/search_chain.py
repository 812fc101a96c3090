"""Gain of each part of the whole search: `python -m kytolly.search.benchmark.search_chain DIR`.

On each collection and for each seed an agent and a re-ranker over it are trained with the default
settings, unless runs are given. Test queries are searched with BM25, with cosines beside it, with
the agent's queries, and by the whole chain. A query's value is its mean over the seeds; differences
have 95% intervals by a paired bootstrap over queries. Nothing but this sees test judgments.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.benchmarks.program import Result
from kytolly.benchmarks.suite import Options, Report, Watch
from kytolly.benchmarks.tables import print_report
from kytolly.search.chain import SearchChain
from kytolly.search.config.ranker import RankerConfig
from kytolly.search.index.corpus import BUILTIN, load_collection
from kytolly.search.index.fusion import FusedSearch
from kytolly.search.index.metrics import paired_bootstrap, per_query
from kytolly.search.ranker_training import train_ranker
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.train import train

METRIC, TOP = "ndcg@10", 10
SEARCHES = ("BM25", "fused", "reformulated", "re-ranked")
TIMED_QUERIES = 50
TRIAL: dict[str, Any] = {"total_updates": 4, "samples": 16, "width": 8, "layers": 1, "heads": 2}


def search_table(options: Options, watch: Watch) -> Report:
    """The table of one collection, with agents and re-rankers trained for it."""
    folder, seeds = options.collection or BUILTIN, options.seeds or 1
    by_seed = []
    watch.begin(seeds)
    for seed in range(seeds):
        with watch.turn(f"seed {seed}"):
            by_seed.append(chain_values(folder, seed, quick=options.quick))
    return chain_report(folder, by_seed)


def chain_values(
    collection: str,
    seed: int,
    agent: str | None = None,
    ranker: str | None = None,
    quick: bool = False,
) -> Result:
    """The metric of each test query under each search, and milliseconds of one query.

    Args:
        collection: Folder in the BEIR layout, with test judgments.
        seed: Of both trainings.
        agent: Run of one; None: it is trained here, unless a re-ranker is given.
        ranker: Run of a re-ranker; None: it is trained here.
        quick: Train only as long as it takes to see that it works.
    """
    with tempfile.TemporaryDirectory() as folder:
        if agent is None and ranker is None:
            agent = f"{folder}/agent"
            options = ReformulationOptions(collection=collection, seed=seed)
            if quick:
                short = dataclasses.replace(options.training, epochs=1)
                options = dataclasses.replace(options, training=short)
            train(options, log_dir=agent)
        if ranker is None:
            ranker = f"{folder}/ranker"
            cfg = RankerConfig(agent=agent, seed=seed, **(TRIAL if quick else {}))
            train_ranker(cfg, collection, ranker, progress=False)
        chain = SearchChain.load(agent or ranker, collection, ranker=agent and ranker)
    return {**chain_metrics(chain, collection), "weight": chain.weight}


def chain_metrics(chain: SearchChain, folder: str) -> Result:
    """The metric of each test query, by search, and what one query takes."""
    collection = load_collection(folder, ("test",))
    grades = collection.judgments["test"]
    numbers = collection.split("test")
    texts = {collection.query_ids[one]: collection.queries[one] for one in numbers}
    runs = {name: {} for name in chain.columns}
    for one in chain.search(texts, TOP):
        for name, hits in one.columns.items():
            runs[name][one.query_id] = list(hits)
    agent = chain.agent
    context = agent.context if agent else None
    fused = (
        FusedSearch(context.index, 1.0, context.documents, context.cache)
        if context
        else FusedSearch.of_texts(collection.texts)
    )
    hits = chain.hits(fused, collection, numbers, TOP)
    runs["fused"] = {
        collection.query_ids[one]: list(row) for one, row in zip(numbers, hits, strict=True)
    }
    values = {
        name: list(per_query(grades, run, [METRIC])[METRIC].values()) for name, run in runs.items()
    }
    return {"values": values, "milliseconds": milliseconds(chain, list(texts.values()))}


def milliseconds(chain: SearchChain, texts: Sequence[str]) -> dict[str, float]:
    """Median wall time of one query under BM25 and by the whole chain."""
    times: dict[str, list[float]] = {"BM25": [], "whole chain": []}
    for text in texts[:TIMED_QUERIES]:
        began = time.perf_counter()
        asked = chain.collection.with_queries(("",), (text,))
        chain.hits(chain.bm25, asked, [0], TOP)
        between = time.perf_counter()
        chain.search([text], TOP)
        times["BM25"].append(between - began)
        times["whole chain"].append(time.perf_counter() - between)
    return {name: 1_000 * statistics.median(seconds) for name, seconds in times.items()}


def chain_report(collection: str, by_seed: Sequence[Result]) -> Report:
    """The table of one collection.

    Args:
        collection: Its folder.
        by_seed: What `chain_values` gives for each seed.
    """
    names = [name for name in SEARCHES if name in by_seed[0]["values"]]
    values = {name: np.mean([one["values"][name] for one in by_seed], axis=0) for name in names}
    rows, data = [], []
    for place, name in enumerate(names):
        bases = [names[0], names[place - 1]] if place else []
        gains = [paired_bootstrap(values[name].tolist(), values[base].tolist()) for base in bases]
        cells = [f"{gain:+.4f} ({low:+.4f} to {high:+.4f})" for gain, low, high in gains]
        mean = float(values[name].mean())
        rows.append([name, f"{mean:.4f}", *(cells or ["", ""])])
        data.append({"name": name, METRIC: mean, "gains": dict(zip(bases, gains, strict=True))})
    times = {
        name: statistics.median(one["milliseconds"][name] for one in by_seed)
        for name in by_seed[0]["milliseconds"]
    }
    notes = [
        f"{len(values[names[0]])} test queries; mean over {len(by_seed)} seeds; 95% intervals by a "
        "paired bootstrap over queries.",
        "Weight of the re-ranker, by seed: " + ", ".join(f"{one['weight']:g}" for one in by_seed),
        "One query: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in times.items()) + ".",
    ]
    columns = ["", METRIC, "over BM25", "over the row above"]
    title = f"The whole search on {Path(collection).name}, held-out test queries"
    return Report(title, columns, rows, notes, {"rows": data, "milliseconds": times})


def main(argv: Sequence[str]) -> int:
    """Measure the collections of the command line and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collections", nargs="+", metavar="DIR")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--agent", metavar="RUN", help="instead of training one")
    parser.add_argument("--ranker", metavar="RUN", help="instead of training one")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if len(args.collections) > 1 and (args.agent or args.ranker):
        parser.error("--agent and --ranker are runs of one collection: give one DIR.")
    tables = {}
    for folder in args.collections:
        by_seed = [chain_values(folder, s, args.agent, args.ranker) for s in range(args.seeds)]
        report = chain_report(folder, by_seed)
        command = f"python -m kytolly.search.benchmark.search_chain {folder} --seeds {args.seeds}"
        print_report(report, command, sys.stderr if args.json else sys.stdout)
        tables[folder] = report.data
    if args.json:
        print(json.dumps(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
