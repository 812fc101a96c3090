"""The command that reformulates queries, without a run; with one: tests/reformulation."""

import dataclasses
import json
import re

import pytest

from kytolly.command import entry
from kytolly.search.reformulate import result
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.train import train
from tests.search.reformulate.tiny_collection import make_options, write_collection

pytestmark = pytest.mark.usefixtures("every_change_pays")


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


def test_an_export_is_made_for_an_engine_without_cosines(collection, capsys, monkeypatch):
    monkeypatch.setattr(result, "MIN_EXPORTED", 0.0)
    argv = ["reformulate", "pretrained", "key12 noise1", "--collection", collection]
    assert entry.main([*argv, "--export", "lucene"]) == 0
    exported = capsys.readouterr().out.strip()
    plain = Reformulator.pretrained(collection, fusion=0.0).reformulate("key12 noise1")
    fused = Reformulator.pretrained(collection).reformulate("key12 noise1")
    assert exported == plain.lucene != fused.lucene
    assert entry.main([*argv, "--export", "lucene", "--fusion", "1"]) == 0  # what is asked for
    assert capsys.readouterr().out.strip() == fused.lucene


def test_terms_that_weigh_little_are_not_exported(collection):
    found = Reformulator.pretrained(collection).reformulate("key12 noise1")
    term = found.added[0]
    light = term._replace(surface="light", weight=0.049)
    words = {"key12": 0.02, "noise1": 1.0, "heavy": 0.05, "light": 0.049}
    heavy = term._replace(surface="heavy", weight=0.05)
    changed = dataclasses.replace(found, added=(heavy, light), words=words)
    assert changed.lucene == "key12^0.02 noise1 heavy^0.05"  # what was typed stays
    assert changed.fts5.weights == changed.exported_words
    assert len(changed.elasticsearch("text")["bool"]["should"]) == 3


def test_rankings_show_the_first_words_of_documents(collection, capsys):
    argv = ["reformulate", "pretrained", "key12 noise1", "--collection", collection, "--top", "3"]
    assert entry.main(argv) == 0
    ranking = capsys.readouterr().out.split("Ranking after")[1].splitlines()[1:]
    assert len(ranking) == 3 and all(re.search(r"\)  key12 \w+", line) for line in ranking)
    assert all(len(line) < 120 for line in ranking)


def test_two_systems_stand_side_by_side(collection, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = make_options(collection, {"fusion": 0.0}, epochs=0, warm_start_epochs=2)
    train(options, log_dir=tmp_path / "trained")
    argv = ["search", "trained", "key12 noise1", "--against", "pretrained"]
    assert entry.main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["columns"]) == ["trained", "pretrained"]
    for name, one in (
        ("trained", Reformulator.load("trained")),
        ("pretrained", Reformulator.pretrained(collection)),
    ):
        expected = one.reformulate("key12 noise1").as_dict()
        assert found["columns"][name] == expected["after"] and found["lucene"][name]
    assert entry.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("trained: key12") and lines[2].startswith("pretrained: key12")
    assert lines[4].split() == ["trained", "pretrained"] and "Signs compare" in lines[-1]
    for bad in (["trained"], ["pretrained", "--ranker", "trained"]):
        assert entry.main([*argv[:4], *bad]) == 2
        assert "--against" in capsys.readouterr().err
