"""Collections made by rule have the figures that they claim, and every size is measured."""

import dataclasses
import json
import time

import numpy as np
import pytest

from kytolly.benchmarks import suite
from kytolly.benchmarks.program import run_program
from kytolly.benchmarks.suite import Options
from kytolly.search.benchmark import query_latency, query_scale
from kytolly.search.benchmark.query_latency import PARTS
from kytolly.search.index.bm25 import BM25Index
from kytolly.search.index.corpus import load_collection
from kytolly.search.index.rank_metrics import metric
from kytolly.search.reformulate import ppo_training


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "collection"
    query_scale.write_collection(folder, 2_000, {"train": 60, "dev": 20})
    return load_collection(folder, ("train", "dev"))


def test_a_collection_has_the_figures_of_sentences(made):
    words = [text.split() for text in made.texts]
    lengths = [len(text) for text in words]
    assert np.mean(lengths) == pytest.approx(25, rel=0.1)  # WikiQA: 25.1, 16 to 32 in the middle
    assert np.percentile(lengths, [25, 75]) == pytest.approx([16, 32], abs=3)
    assert np.mean([len(query.split()) for query in made.queries]) == pytest.approx(6, abs=0.7)
    distinct, counts = np.unique([word for text in words for word in text], return_counts=True)
    assert len(distinct) < 29 * sum(lengths) ** 0.54 * 1.1
    counts = np.sort(counts)[::-1]
    assert counts[0] / counts[99] == pytest.approx(100, rel=0.4)  # Zipf's law; WikiQA: 96
    assert counts[0] / sum(lengths) == pytest.approx(0.1, rel=0.2)
    assert len(set(made.queries)) > 70 and not set(made.query_ids) & set(made.doc_ids)


def test_queries_are_neither_hopeless_nor_solved(made):
    index, values = BM25Index(made.texts), []
    for number in made.split("train"):
        scores = index.scores(index.query_weights(made.queries[number]))
        (relevant,) = made.relevant(number, "train")
        rank = np.array([[np.count_nonzero(scores > scores[relevant])]], np.int32)
        values.append(float(metric("ndcg@10", rank, np.array([1]))[0]))
    assert 0.2 < np.mean(values) < 0.8


def test_words_are_distinct_and_stop_words_come_first():
    words = query_scale.vocabulary(30_000)
    assert len(set(words)) == 30_000 and "the" in words[:150]
    assert len(query_scale.vocabulary(50)) == 50


@pytest.mark.learning
def test_one_size_is_measured(capsys, monkeypatch):
    made = ppo_training.ppo_config
    uncompiled = lambda *args: dataclasses.replace(made(*args), xla=False)  # noqa: E731
    monkeypatch.setattr(ppo_training, "ppo_config", uncompiled)
    argv = "--documents 200 --train 20 --dev 5 --rollouts 1"
    assert run_program(query_scale.PROGRAM, None, argv.split()) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["documents"] == 200 and found["queries"] == {"train": 20, "dev": 5}
    assert found["episodes"] > 500 and found["table_mib"] > 1
    assert found["peak_memory_mib"] > 100 and set(found["seconds"]) == set(found["cpu_seconds"])


def test_one_query_is_measured_in_parts_that_add_up(capsys, tmp_path):
    argv = "--documents 300 --queries 8 --encoder hash"
    assert run_program(query_latency.PROGRAM, None, argv.split()) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["documents"] == 300 and found["encoder"] == "hash" and found["queries"] == 8
    assert 0 < found["cpu_ms"] <= found["slow_ms"] and 0 < found["added"] <= 20
    assert found["parts_ms"].keys() == set(PARTS) and min(found["parts_ms"].values()) > 0
    assert sum(found["parts_ms"].values()) < 10 * found["cpu_ms"]
    query_scale.write_collection(tmp_path / "few", 50, {"dev": 10})
    few = query_latency.LatencyOptions(encoder="hash", collection=str(tmp_path / "few"))
    with pytest.raises(ValueError, match="different queries"):
        query_latency.measure_latency(few)


def test_parts_leave_out_the_parts_inside_them():
    parts = query_latency.Parts()

    def work(seconds):
        began = time.thread_time()
        while time.thread_time() - began < seconds:
            pass

    with parts.part("mining"):
        work(0.02)
        with parts.part("BM25"):
            work(0.05)
    assert 0.02 <= parts.seconds["mining"] < 0.045 <= parts.seconds["BM25"] < 0.09


def test_the_table_says_how_much_each_figure_grows(tmp_path, monkeypatch):
    def run_module(module, arguments, core):
        size = int(arguments[1])
        if module == query_scale.LATENCY:
            parts = dict.fromkeys(PARTS, 0.25) | {"cosines": size / 100}
            return {"documents": size, "words": 15.2, "encoder": "hash", "queries": 5,
                    "cpu_ms": 3.0, "wall_ms": 3.5, "slow_ms": 6.0, "parts_ms": parts}  # fmt: skip
        seconds = {"indexing": size / 100, "mining": 1.0, "tables": 1.0, "compiling": 9.0,
                   "training": 4.0}  # fmt: skip
        return {
            "documents": size,
            "terms": 7,
            "table_mib": 3.0,
            "episodes": 2_000,
            "cpu_seconds": seconds,
            "peak_memory_mib": 500 + size,
        }

    monkeypatch.setattr(query_scale, "run_module", run_module)
    picture = tmp_path / "scale.png"
    options = Options(repeats=2, quick=True, figure=str(picture))
    report = query_scale.reformulation_scale(options, suite.Watch(suite.progress_display()))
    # Preparation takes 2 + 1 + 1 s and then 4 + 1 + 1 s; 4 s for 2,000 episodes are 2 s a thousand.
    assert report.rows[0] == (
        ["200", "7", "2.0", "1.0", "1.0", "4.0", "9.0", "2.0", "3", "700", "3.0"]
    )
    assert len(report.rows[0]) == len(report.columns)
    assert report.notes[3] == (
        "One query over 400 documents of 15 terms, encoder hash: 3.0 ms of CPU, one in ten above "
        "6.0, wall time 3.5 ms (medians of 5 new queries). Mean ms of its parts: mining 0.25, "
        "features 0.25, embedding 0.25, network 0.25, BM25 0.25, cosines 4.00, ranking 0.25, "
        "rest 0.25."
    )
    assert report.notes[4] == (
        "200 to 400 documents (x 2): preparation x 1.5, training x 1.0, memory x 1.3, "
        "one query x 1.0."
    )
    assert picture.stat().st_size > 1_000
    with pytest.raises(ValueError, match="expected the name of a plot"):
        query_scale.reformulation_scale(
            Options(figure="x.doc"), suite.Watch(suite.progress_display())
        )
