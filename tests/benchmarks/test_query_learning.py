"""Seeds are averaged query by query and judged against BM25 and tuned baselines."""

from pathlib import Path

import numpy as np
import pytest

from kytolly.benchmarks import query_learning
from kytolly.benchmarks.suite import Options, Watch, progress_display
from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.corpus import load_collection
from kytolly.retrieval.trec import write_run
from tests.reformulation.tiny_collection import write_collection

TOP = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("data") / "tiny")


def write_runs(folder, run_dir, perfect):
    """What `train_optimized.py --test` leaves: BM25's run, and one that is perfect or the same."""
    collection = load_collection(folder, ("test",))
    index, numbers = BM25Index(collection.texts), collection.split("test")
    weights = [index.query_weights(collection.queries[number]) for number in numbers]
    found = [index.search(own, TOP) for own in weights]
    plain = {
        collection.query_ids[number]: [
            (collection.doc_ids[doc], float(score)) for doc, score in zip(*hits, strict=True)
        ]
        for number, hits in zip(numbers, found, strict=True)
    }
    best = {
        query: [(doc, 1.0 - place / 100) for place, doc in enumerate(grades)]
        for query, grades in collection.judgments["test"].items()
    }
    run_dir.mkdir(parents=True)
    write_run(run_dir / "test_bm25.run", plain)
    write_run(run_dir / "test_reformulated.run", best if perfect else plain)


def test_seeds_are_trained_by_the_command_and_averaged(folder, monkeypatch):
    commands = []

    def run_module(module, arguments, core):
        commands.append((module, arguments))
        write_runs(folder, Path(arguments[arguments.index("--log-dir") + 1]), len(commands) == 1)
        return {"total_seconds": 3.0}

    monkeypatch.setattr(query_learning, "run_module", run_module)
    monkeypatch.setattr(query_learning, "RM3_GRID", {"original": (0.5,), "documents": (5,)})
    monkeypatch.setattr(query_learning, "ROCCHIO_GRID", {"beta": (0.5,), "documents": (5,)})
    with progress_display() as progress:
        report = query_learning.reformulation_learning(
            Options(collection=str(folder), seeds=2), Watch(progress)
        )
    assert [module for module, _ in commands] == ["kytolly.command.train_optimized"] * 2
    for seed, (_, arguments) in enumerate(commands):
        assert "--test" in arguments and arguments[arguments.index("--seed") + 1] == str(seed)
        assert arguments[arguments.index("--collection") + 1] == str(folder)

    names = [row["name"] for row in report.data["rows"]]
    assert names == ["BM25", "RM3, tuned", "Rocchio, tuned", "Kytolly, mean of 2 seeds"]
    plain, rm3, _, own = report.data["rows"]
    assert 0.1 < plain["mean"] < 0.9
    assert own["mean"] == pytest.approx((1.0 + plain["mean"]) / 2)  # one perfect seed, one plain
    assert report.data["seeds"] == pytest.approx([1.0 - plain["mean"], 0.0])
    gain = own["over BM25"]
    assert gain["mean"] == pytest.approx((1.0 - plain["mean"]) / 2)
    assert 0.0 < gain["low"] < gain["mean"] < gain["high"]
    assert own["over RM3, tuned"]["mean"] == pytest.approx(own["mean"] - rm3["mean"])


def test_a_query_without_candidates_keeps_its_value_in_the_baselines(folder, monkeypatch):
    monkeypatch.setattr(query_learning, "RM3_GRID", {"original": (0.5,)})
    monkeypatch.setattr(query_learning, "ROCCHIO_GRID", {"beta": (0.5,)})
    chosen = query_learning.ReformulationOptions(collection=str(folder))
    queries = list(load_collection(folder, ("test",)).judgments["test"])
    found = query_learning.tuned_baselines(chosen, np.full(len(queries), 7.0), queries)
    for value, _ in found.values():
        kept = [query for query, one in zip(queries, value, strict=True) if one == 7.0]
        assert kept == ["empty-test"]
