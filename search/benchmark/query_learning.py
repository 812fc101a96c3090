"""Gain of reformulated queries, over seeds: `reformulation-learning --collection DIR`.

Each seed is one `train_optimized.py --test` with the default settings in a process of its own. A
query's value is its mean over the seeds, and the differences are judged by a paired bootstrap over
the test queries. What needs no agent is the same for all seeds. It is tuned on dev queries, as
`docs/query_reformulation.md` says. Nothing else sees test judgments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kytolly.benchmarks.program import Result
from kytolly.benchmarks.suite import Options, Report, Watch, one_core, run_module
from kytolly.search.index.corpus import BUILTIN, load_collection
from kytolly.search.index.metrics import paired_bootstrap, per_query
from kytolly.search.index.trec import read_run
from kytolly.search.reformulate.options import ReformulationOptions
from kytolly.search.reformulate.report import SYSTEMS

COMMAND = "kytolly.search.command.train_optimized"
SEEDS = 5
TRIAL = ("--epochs", "1")
BASES = {"bm25": "over BM25", "rm3": "over RM3", "fused": "over BM25 + cosines"}
OWN = ("agent", "agent_fused")


def reformulation_learning(options: Options, watch: Watch) -> Report:
    """Train every seed, judge its test queries, and compare with what needs no agent."""
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
                summaries.append(run_module(COMMAND, [*flags, *trial], one_core()))
        with watch.turn("judging"):
            return judged_runs(chosen, runs, summaries)


def judged_runs(
    chosen: ReformulationOptions, runs: Sequence[Path], summaries: Sequence[Result]
) -> Report:
    """The table of finished runs, one for each seed, and of what they are compared with."""
    metric = chosen.retrieval.metric
    qrels = load_collection(chosen.collection, ("test",)).judgments["test"]
    by_seed = [run_values(run, qrels, metric) for run in runs]
    values = {
        name: np.mean([values_of_run[name] for values_of_run in by_seed], axis=0)
        for name in SYSTEMS
        if all(name in values_of_run for values_of_run in by_seed)
    }
    rows, data = system_rows(values, len(runs))
    gains = {
        name: [
            float((values_of_run[name] - values_of_run[base]).mean()) for values_of_run in by_seed
        ]
        for name, base in zip(OWN, ("bm25", "fused"), strict=True)
    }
    fusions = ", ".join(f"{summary['fusion']:g}" for summary in summaries)
    notes = [
        f"{len(qrels)} test queries, {metric}; 95% intervals by a paired bootstrap over queries.",
        f"Weight of the cosines by seed: {fusions}",
        "Agent over BM25 by seed: " + ", ".join(f"{gain:+.4f}" for gain in gains["agent"]),
        "Agent with cosines over BM25 with cosines by seed: "
        + ", ".join(f"{gain:+.4f}" for gain in gains["agent_fused"]),
        "Seconds of a run, by seed: " + ", ".join(f"{s['total_seconds']:.0f}" for s in summaries),
        *(f"{SYSTEMS[name]}: {best}" for name, best in summaries[0]["test"]["tuned"].items()),
    ]
    title = f"Query reformulation on {Path(chosen.collection).name}, held-out test queries"
    columns = ["", metric, *BASES.values()]
    values_of_run = {"rows": data, "seeds": gains, "runs": summaries}
    return Report(title, columns, rows, notes, values_of_run)


def run_values(
    run: Path, qrels: Mapping[str, Mapping[str, int]], metric: str
) -> dict[str, np.ndarray]:
    """System -> [Q] metric of all test queries, for each system whose run file holds them all."""
    values_by_system = {}
    for name in SYSTEMS:
        path = run / f"test_{name}.run"
        if path.is_file() and name != "ceiling":  # which may be that of some queries
            values = per_query(qrels, read_run(path), (metric,))[metric]
            values_by_system[name] = np.array([values[query] for query in qrels])
    return values_by_system


def system_rows(
    values: Mapping[str, np.ndarray], seeds: int
) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Rows and their data: each system's mean, and its differences to the systems of `BASES`."""
    rows, data = [], []
    for name, system_values in values.items():
        label = SYSTEMS[name].replace("{fusion:g} ", "")
        row = [label + (f", {seeds} seeds" if name in OWN else ""), f"{system_values.mean():.4f}"]
        row_data: dict[str, Any] = {"name": name, "mean": float(system_values.mean())}
        for base, column in BASES.items():
            same_search = base != "fused" or name == "agent_fused"
            if base not in values or name in ("bm25", base) or not same_search:
                row.append("")
                continue
            mean, low, high = paired_bootstrap(list(system_values), list(values[base]))
            row.append(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})")
            row_data[column] = {"mean": mean, "low": low, "high": high}
        rows.append(row)
        data.append(row_data)
    return rows, data
