"""The command that reformulates queries, without a run; with one: tests/reformulation."""

import json

import pytest

from kytolly.command import entry
from kytolly.search.reformulate.reformulator import Reformulator
from tests.search.reformulate.tiny_collection import write_collection


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    return str(write_collection(tmp_path_factory.mktemp("data") / "tiny"))


def complaint(argv, capsys):
    assert entry.main(["reformulate", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    return captured.err


def test_the_network_of_the_package_needs_no_run(collection, capsys):
    argv = ["pretrained", "key12 noise1", "--collection", collection, "--json"]
    found = []
    for flags in ([], ["--fusion", "0"]):
        assert entry.main(["reformulate", *argv, *flags]) == 0
        found.append(json.loads(capsys.readouterr().out))
    fused, plain = found
    reformulator = Reformulator.pretrained(collection)
    assert fused["after"] == reformulator.reformulate("key12 noise1").as_dict()["after"] != []
    scores = reformulator.context.index.scores(plain["weights"])  # BM25 alone, no cosine
    places = reformulator.context.collection.doc_index
    for hit in plain["after"]:
        assert hit["score"] == pytest.approx(float(scores[places[hit["doc_id"]]]))
    assert fused["after"] != plain["after"]


def test_the_network_of_the_package_needs_documents(capsys):
    assert "pretrained needs --collection DIR" in complaint(["pretrained", "query"], capsys)


def test_a_folder_called_pretrained_is_named_as_one(collection, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pretrained").mkdir()
    argv = ["./pretrained", "query", "--collection", collection]
    assert "pretrained is no run" in complaint(argv, capsys)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1001", "much", ""])
def test_a_fusion_that_is_no_weight_is_refused(value, collection, capsys):
    argv = ["pretrained", "query", "--collection", collection, f"--fusion={value}"]
    assert "expected a number from 0 to 1,000" in complaint(argv, capsys)
