"""How much better queries become, over seeds: `reformulation-learning --collection DIR`.

Each seed is one `train_optimized.py --test` with the default settings in a process of its own. A
query's value is its mean over the seeds, and the differences are judged by a paired bootstrap over
the test queries. RM3 and Rocchio are tuned on the dev queries. Nothing else sees test judgements.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.benchmarks.suite import Options, Report, Watch, one_core, run_module
from kytolly.reformulation.baselines import (
    RM3,
    RM3_GRID,
    ROCCHIO_GRID,
    Rocchio,
    TunedMethod,
    evaluate,
    tune,
)
from kytolly.reformulation.options import ReformulationOptions
from kytolly.reformulation.search import SearchSide
from kytolly.retrieval.corpus import BUILTIN, load_collection
from kytolly.retrieval.metrics import paired_bootstrap, per_query
from kytolly.retrieval.trec import read_run

SEEDS = 5
TRIAL = ("--epochs", "1")


def reformulation_learning(options: Options, watch: Watch) -> Report:
    """Train every seed, judge its test queries, and compare with BM25, RM3 and Rocchio."""
    chosen = ReformulationOptions(collection=options.collection or BUILTIN)
    seeds = options.seeds or SEEDS
    watch.begin(seeds + 1)
    with tempfile.TemporaryDirectory() as folder:
        runs, summaries = [Path(folder, str(seed)) for seed in range(seeds)], []
        for seed, run in enumerate(runs):
            with watch.turn(f"seed {seed}"):
                flags = ["--collection", chosen.collection, "--seed", str(seed), "--test", "--json"]
                flags += ["--device", "cpu", "--log-dir", str(run)]
                trial = TRIAL if options.quick else ()
                summaries.append(
                    run_module("kytolly.command.train_optimized", [*flags, *trial], one_core())
                )
        with watch.turn("judging, and tuning RM3 and Rocchio on dev queries"):
            return judged_runs(chosen, runs, summaries)


def judged_runs(
    chosen: ReformulationOptions, runs: Sequence[Path], summaries: Sequence[dict[str, Any]]
) -> Report:
    """The table of finished runs, one for each seed, and of what they are compared with."""
    metric = chosen.retrieval.metric
    qrels = load_collection(chosen.collection, ("test",)).judgments["test"]

    def values_of(path: Path) -> np.ndarray:
        values = per_query(qrels, read_run(path), (metric,))[metric]
        return np.array([values[query] for query in qrels])

    plain = values_of(runs[0] / "test_bm25.run")
    learnt = [values_of(run / "test_reformulated.run") for run in runs]
    tuned = tuned_baselines(chosen, plain, list(qrels))
    values = {"BM25": plain, **{f"{name}, tuned": value for name, (value, _) in tuned.items()}}
    values[f"Kytolly, mean of {len(runs)} seeds"] = np.mean(learnt, axis=0)
    rows, data = compared_values(values)
    each = [float((own - plain).mean()) for own in learnt]
    notes = [
        f"{len(qrels)} test queries, {metric}; 95% intervals by a paired bootstrap over queries.",
        "Over BM25 by seed: " + ", ".join(f"{gain:+.4f}" for gain in each),
        "Seconds of a run, by seed: " + ", ".join(f"{s['total_seconds']:.0f}" for s in summaries),
        *(f"{name}: {best.settings}" for name, (_, best) in tuned.items()),
    ]
    title = f"Query reformulation on {Path(chosen.collection).name}, held-out test queries"
    columns = ["", metric, "over BM25", "over RM3"]
    return Report(title, columns, rows, notes, {"rows": data, "seeds": each, "runs": summaries})


def compared_values(values: dict[str, np.ndarray]) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Rows and figures: each system's mean and its differences from BM25 and from tuned RM3."""
    rows, data = [], []
    for name, own in values.items():
        row, figures = [name, f"{own.mean():.4f}"], {"name": name, "mean": float(own.mean())}
        for other in ("BM25", "RM3, tuned"):
            if name == other or name == "BM25":
                row.append("")
                continue
            mean, low, high = paired_bootstrap(list(own), list(values[other]))
            row.append(f"{mean:+.4f} ({low:+.4f} to {high:+.4f})")
            figures[f"over {other}"] = {"mean": mean, "low": low, "high": high}
        rows.append(row)
        data.append(figures)
    return rows, data


def tuned_baselines(
    chosen: ReformulationOptions, plain: np.ndarray, queries: Sequence[str]
) -> dict[str, tuple[np.ndarray, TunedMethod]]:
    """RM3 and Rocchio: their values of the test queries, and their best settings on dev queries.

    Args:
        chosen: The collection and how it is searched.
        plain: [Q] BM25's values, which a query keeps that has no candidate.
        queries: [Q] ids of the test queries.
    """
    metric = chosen.retrieval.metric
    tuning = SearchSide.load(chosen, ("dev",))
    dev = [query for query in tuning.queries("dev") if query.has_relevant]
    testing = SearchSide.load(chosen, ("test",))
    test = [query for query in testing.queries("test") if query.has_relevant]
    places = [queries.index(testing.collection.query_ids[query.number]) for query in test]
    found = {}
    for name, kind, grid in (("RM3", RM3, RM3_GRID), ("Rocchio", Rocchio, ROCCHIO_GRID)):
        best = tune(functools.partial(kind, tuning.index), grid, dev, tuning.index, metric)
        value = plain.copy()
        value[places] = evaluate(best.method, test, testing.index, metric)
        found[name] = (value, best)
    return found
