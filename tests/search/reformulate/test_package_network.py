"""The network of the package in runs whose held-out queries are too few to show anything."""

import numpy as np
import pytest

from kytolly.search import Reformulator
from kytolly.search.reformulate import train as train_module
from kytolly.search.reformulate.choice import PRETRAINED_SCALE, Choice, Selection
from kytolly.search.reformulate.gain_model import GainModel
from kytolly.search.reformulate.network import NumpyScorer, load_pretrained
from kytolly.search.reformulate.package_network import package_selections
from kytolly.search.reformulate.reformulator import for_unknown_documents
from kytolly.search.reformulate.report import lines as report_lines
from kytolly.search.reformulate.selection import Sample, mined_queries
from kytolly.search.reformulate.train import prepare, train
from tests.search.reformulate.tiny_collection import make_options, write_collection

RETRIEVAL = {"encoder": "wordllama", "dimension": 256, "fusion": 0.5}


@pytest.fixture(autouse=True)
def with_embeddings():
    pytest.importorskip("wordllama")


def sample(context, network, split, numbers):
    queries = mined_queries(context, split, numbers)
    return Sample(split, queries, [network], np.zeros(len(queries), np.int64))


def test_it_is_used_where_held_out_queries_gain(collection, every_change_pays):
    prepared = prepare(make_options(collection, RETRIEVAL), lambda line: None)
    context, network = for_unknown_documents(prepared.context), NumpyScorer(load_pretrained())
    samples = [
        sample(context, network, "dev", prepared.dev.number),
        sample(context, network, "train", prepared.train.number[:20]),
    ]
    fusions = {"plain": 0.0, "fused": 0.5}
    found = package_selections(context, network, fusions, samples)
    chosen = found["fused"]
    assert chosen.choice == Choice(0.5, PRETRAINED_SCALE) and chosen.network == 0
    assert [(part.split, part.queries) for part in chosen.evidence] == [
        ("dev", len(prepared.dev.number)),
        ("train", 20),
    ]
    total = sum(part.queries * part.gain for part in chosen.evidence)
    count = sum(part.queries for part in chosen.evidence)
    assert chosen.whole_gain == pytest.approx(total / count) and chosen.whole_gain > 0.0
    assert found["plain"].choice == Choice(0.0, 0.0) and found["plain"].whole_gain < 0.0


def test_it_is_left_alone_where_they_lose_or_nothing_pays(collection, monkeypatch):
    found = prepare(make_options(collection, RETRIEVAL), lambda line: None)
    context, network = for_unknown_documents(found.context), NumpyScorer(load_pretrained())
    fusions = {"plain": 0.0, "fused": 1.0}
    nothing_pays = GainModel.read()._replace(margins=np.array([9.0, 9.0]))
    monkeypatch.setattr(GainModel, "read", lambda: nothing_pays)
    samples = [
        sample(context, network, "dev", found.dev.number),
        sample(context, network, "train", found.train.number),
    ]
    assert package_selections(context, network, fusions, samples) is None


def test_few_held_out_queries_say_nothing(collection, every_change_pays):
    found = prepare(make_options(collection, RETRIEVAL), lambda line: None)
    context, network = for_unknown_documents(found.context), NumpyScorer(load_pretrained())
    dev, train_queries = found.dev.number[:10], found.train.number
    for count, used in ((20, True), (19, False)):
        samples = [
            sample(context, network, "dev", dev),
            sample(context, network, "train", train_queries[:count]),
        ]
        found = package_selections(context, network, {"fused": 0.5}, samples)
        assert (found is not None) == used
    assert package_selections(context, network, {"fused": 0.5}, []) is None


def test_a_run_that_learned_nothing_is_that_of_the_package(
    tmp_path, every_change_pays, monkeypatch
):
    collection, lines = write_collection(tmp_path / "tiny"), []
    real = train_module.make_choice

    def nothing_helps(*args):
        return {
            kind: Selection(Choice(one.choice.fusion), 0, 12, 0.5, 0.0, 0.0)
            for kind, one in real(*args).items()
        }

    monkeypatch.setattr(train_module, "make_choice", nothing_helps)
    short = {"epochs": 0, "warm_start_epochs": 2, "held_out_folds": 0}
    options = make_options(collection, RETRIEVAL, **short)
    summary = train(options, log_dir=tmp_path / "run", test=True, say=lines.append)
    assert summary["network"] == "pretrained"
    assert "nothing that was learned helps beyond chance" in "\n".join(report_lines(summary))
    scales = {kind: choice["scale"] for kind, choice in summary["choices"].items()}
    assert scales == {"plain": 0.0, "fused": PRETRAINED_SCALE}
    queries = [f"key{k} noise1" for k in range(6)]
    loaded = Reformulator.load(tmp_path / "run").reformulate_all(queries)
    package = Reformulator.pretrained(collection, fusion=0.5).reformulate_all(queries)
    assert any(one.added for one in loaded)
    for one, other in zip(loaded, package, strict=True):
        assert one.lowered == () and {t.term for t in one.added} <= {t.term for t in other.added}
