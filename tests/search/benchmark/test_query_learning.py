"""Seeds are averaged query by query and judged against what needs no agent."""

from pathlib import Path

import pytest

from kytolly.benchmarks.suite import Options, Watch, progress_display
from kytolly.search.benchmark import query_learning
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.trec import write_run
from tests.search.reformulate.tiny_collection import write_collection

TOP = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("data") / "tiny")


def write_runs(folder, run_dir, perfect):
    """What `train_optimized.py --test` leaves: an agent that is perfect, or BM25 itself."""
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
    for name in ("bm25", "rm3", "agent"):
        write_run(run_dir / f"test_{name}.run", plain)
    for name in ("fused", "ceiling"):
        write_run(run_dir / f"test_{name}.run", best)
    write_run(run_dir / "test_agent_fused.run", best if perfect else plain)


def test_seeds_are_trained_by_the_command_and_averaged(folder, monkeypatch):
    commands = []

    def run_module(module, arguments, core):
        commands.append((module, arguments))
        write_runs(folder, Path(arguments[arguments.index("--log-dir") + 1]), len(commands) == 1)
        tuned = {"rm3": {"original": 1.0}}
        return {"total_seconds": 3.0, "fusion": 0.5, "test": {"tuned": tuned}}

    monkeypatch.setattr(query_learning, "run_module", run_module)
    with progress_display() as progress:
        report = query_learning.reformulation_learning(
            Options(collection=str(folder), seeds=2), Watch(progress)
        )
    assert [module for module, _ in commands] == ["kytolly.search.command.train_optimized"] * 2
    for seed, (_, arguments) in enumerate(commands):
        assert "--test" in arguments and arguments[arguments.index("--seed") + 1] == str(seed)
        assert arguments[arguments.index("--collection") + 1] == str(folder)

    names = [row["name"] for row in report.data["rows"]]
    assert names == ["bm25", "rm3", "agent", "fused", "agent_fused"]  # no ceiling: it is no system
    plain, rm3, agent, fused, own = report.data["rows"]
    assert 0.1 < plain["mean"] < 0.9 and rm3["over BM25"]["mean"] == 0.0
    assert fused["mean"] == 1.0 and "over BM25 + cosines" not in agent
    assert own["mean"] == pytest.approx((1.0 + plain["mean"]) / 2)  # one perfect seed, one plain
    assert report.data["seeds"]["agent"] == [0.0, 0.0]
    assert report.data["seeds"]["agent_fused"] == pytest.approx([0.0, plain["mean"] - 1.0])
    gain = own["over BM25"]
    assert gain["mean"] == pytest.approx((1.0 - plain["mean"]) / 2)
    assert 0.0 < gain["low"] < gain["mean"] < gain["high"]
    assert own["over BM25 + cosines"]["mean"] == pytest.approx((plain["mean"] - 1.0) / 2)
    assert all(len(row) == len(report.columns) for row in report.rows)
    assert report.rows[-1][0] == "agent + cosines, 2 seeds"
    assert "RM3: {'original': 1.0}" in report.notes
