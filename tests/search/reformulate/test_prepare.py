"""From a collection to tables: what is left out is counted and said."""

import dataclasses

import numpy as np

from kytolly.search.reformulate import train as train_module
from kytolly.search.reformulate.query import CANDIDATE_FEATURES
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.table import row_bytes
from kytolly.search.reformulate.train import prepare
from tests.search.reformulate.tiny_collection import make_options, write_collection


def test_tables_hold_the_usable_queries_in_order(collection):
    lines = []
    found = prepare(make_options(collection), lines.append)
    context = found.context
    for split, table, count in (("train", found.train, 24), ("dev", found.dev, 18)):
        assert table.number.tolist() == context.collection.split(split)[:count]
        assert table.columns.shape == (count, 20, 64)
        assert found.counts[split] == count + 1 and found.counts[f"{split}_skipped"] == 1
        said = next(line for line in lines if line.startswith(f"{split} queries"))
        assert f"{count} of {count + 1}; 1 query skipped: 1 no token" in said
    assert set(context.phases.seconds) == {"reading", "indexing", "embedding", "mining", "tables"}
    assert "test" not in context.collection.judgments


def test_a_split_without_judgments_has_no_table(collection):
    lines = []
    found = prepare(make_options(collection), lines.append, ("train",))
    assert found.dev is None and found.train is not None and found.counts["dev"] == 0
    assert "dev queries: none, the collection has no judgments of this split" in lines


def test_a_split_whose_queries_are_all_unusable_has_no_table(tmp_path):
    other = write_collection(tmp_path / "tiny")
    text = "query-id\tcorpus-id\tscore\nempty-dev\tgood0.0\t1\nq8.0\tgood8.0\t0\n"
    (other / "qrels" / "dev.tsv").write_text(text)
    found = prepare(make_options(other), lambda line: None)
    assert found.dev is None and found.counts["dev"] == 2
    assert found.counts["dev_skipped"] == found.counts["dev_without_relevant"] == 1


def test_a_query_whose_only_relevant_document_is_itself_is_left_out(tmp_path):
    other = write_collection(tmp_path / "tiny")
    first = (other / "corpus.jsonl").read_text().splitlines()[0]
    assert '"_id": "good0.0"' in first
    with (other / "queries.jsonl").open("a") as file:
        file.write(first + "\n")  # a query with the id and the text of a document
    with (other / "qrels" / "dev.tsv").open("a") as file:
        file.write("good0.0\tgood0.0\t1\n")
    found = prepare(make_options(other), lambda line: None)
    assert found.counts["dev_without_relevant"] == 1 and len(found.dev.number) == 18


def test_of_many_queries_some_are_drawn_by_the_seed(collection):
    lines, options = [], make_options(collection, max_queries=10)
    found = prepare(options, lines.append)
    assert found.counts["train"] == 25 and len(found.train.number) in (9, 10)
    assert "train queries: 10 of 25 are drawn, which max_queries allows" in lines
    assert any(
        line.startswith(f"train queries: {len(found.train.number)} of 10;") for line in lines
    )
    assert (np.diff(found.train.number) > 0).all()
    seeds = [dataclasses.replace(options, seed=seed) for seed in range(4)]
    drawn = [prepare(one, lambda line: None).train.number.tolist() for one in seeds]
    assert drawn[0] == found.train.number.tolist() and any(one != drawn[0] for one in drawn)


def test_the_size_of_tables_is_checked_before_they_are_made(collection, monkeypatch):
    context = SearchContext.load(make_options(collection), ())
    size = 24 * row_bytes(context.rules, len(CANDIDATE_FEATURES))
    monkeypatch.setattr(train_module, "check_memory", lambda needed, *_: sizes.append(needed))
    sizes = []
    prepare(make_options(collection), lambda line: None)
    assert sizes == [size, 18 * size // 24]
