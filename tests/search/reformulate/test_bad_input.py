"""Bad input about query reformulation: one line each, or a stated count."""

import json

import pytest
import tensorflow as tf
import yaml

import train_optimized
from kytolly.search.reformulate.train import prepare
from tests.search.reformulate.tiny_collection import SETTINGS, make_options, write_collection

HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def collection(tmp_path):
    return write_collection(tmp_path / "tiny")


def complaint(collection, capsys, *flags, training=None, **retrieval):
    """The one line of a command that must exit with status 2 and leave no run behind."""
    settings = {
        **SETTINGS,
        "retrieval": {**SETTINGS["retrieval"], **retrieval},
        "training": {**SETTINGS["training"], **(training or {})},
    }
    path = collection.parent / "settings.yaml"
    path.write_text(yaml.safe_dump(settings))
    run = collection.parent / "run"
    argv = ["--config", path, "--collection", collection, "--log-dir", run, *flags]
    assert train_optimized.main([str(part) for part in argv]) == 2
    captured = capsys.readouterr()
    *progress, last = captured.err.strip().splitlines()
    assert captured.out == "" and last.startswith("kytolly: ") and not run.exists(), captured
    assert not any("Traceback" in line or line.startswith("kytolly: ") for line in progress)
    return last


def replace(path, old, new):
    """Replace one text of a file, which must be in it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "file, old, new, words",
    [
        ("corpus.jsonl", '{"_id": "good0.1"', '{"_id": ', "corpus.jsonl:2: not JSON"),
        ("qrels/dev.tsv", "q8.0", "q99", "dev.tsv:2: the query 'q99' is not in queries.jsonl"),
    ],
)
def test_a_malformed_line_is_named_with_its_file(collection, capsys, file, old, new, words):
    replace(collection / file, old, new)
    assert words in complaint(collection, capsys)


def test_no_training_query_and_no_network_to_begin_with_are_refused(collection, capsys):
    """Words are hashed here, which the network of the package has not seen."""
    for text in ("empty-train\tgood0.0\t1\n", "q0.0\tgood0.0\t0\n"):
        (collection / "qrels" / "train.tsv").write_text(HEADER + text)
        said = complaint(collection, capsys)
        assert "no query of the train split" in said and "add judgments" in said
    (collection / "qrels" / "train.tsv").unlink()
    assert "no query of the train split" in complaint(collection, capsys)


def test_candidates_that_exhaust_the_memory_are_refused(collection, capsys, monkeypatch):
    monkeypatch.setattr("kytolly.machine.facts.available_memory_bytes", lambda: 2**30)
    said = complaint(collection, capsys, candidates=1_000_000)
    assert (
        "25 queries with candidates: 1,000,000 and feedback_documents: 10 would take at least 3.0"
        in said
    )
    assert "lower candidates" in said


def test_a_rollout_that_exhausts_the_memory_is_refused(collection, capsys, monkeypatch):
    monkeypatch.setattr("kytolly.machine.facts.available_memory_bytes", lambda: 2**30)
    large = {"buffer_size": 2**26, "episodes_per_update": 2**20, "warm_start_epochs": 0}
    said = complaint(collection, capsys, training=large)
    assert "a rollout of 1,048,576 env steps" in said and "lower buffer_size" in said


@pytest.mark.parametrize("flag", ["--log-dir", "--config", "--collection"])
def test_an_empty_path_is_refused(capsys, tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)
    assert train_optimized.main(["--device=cpu", f"{flag}="]) == 2
    assert "'' was found, expected a path" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text, words",
    [
        ("retrieval: {fuson: 0.2}", "'fuson' is not a setting of RetrievalOptions. Did you mean"),
        ("retrievel: {fusion: 0.2}", "'retrievel' is no section or setting"),
        ("", "holds nothing"),
        ("retrieval: {fusion: much}", "fusion is"),
        ("retrieval: {metric: ndgc@10}", "did you mean 'ndcg@10'"),
        *(
            (f"retrieval: {{{name}: {value}}}", f"{name} is ")
            for name, value in {
                "candidates": 10**30,
                "max_terms": 10**12,
                "dimension": 10**9,
                "workers": 10**6,
                "feedback_documents": 2**64,
                "fusion": "1.0e+300",
                "k1": "1.0e+300",
            }.items()
        ),
    ],
)
def test_a_bad_configuration_is_refused(capsys, tmp_path, text, words):
    (tmp_path / "settings.yaml").write_text(text)
    assert train_optimized.main(["--config", str(tmp_path / "settings.yaml")]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_gpu_that_is_not_there_is_refused(collection, capsys, monkeypatch, device):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])
    said = complaint(collection, capsys, "--device", device)
    assert f"--device is {device}, and TensorFlow sees no GPU" in said and "--device cpu" in said


def test_what_cannot_train_is_left_out_counted_and_said(collection):
    """One query each without a token, a candidate and a relevant document; one unknown document."""
    with (collection / "corpus.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "alone", "text": "hermit"}) + "\n")
    with (collection / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "q-alone", "text": "hermit"}) + "\n")
        file.write(json.dumps({"_id": "q-vain", "text": "key1"}) + "\n")
    with (collection / "qrels" / "train.tsv").open("a") as file:
        file.write("q-alone\talone\t1\nq-vain\tgood1.0\t0\nq0.0\tlost\t1\n")
    lines = []
    with pytest.warns(UserWarning, match=r"left out 1 judgments of documents .*'lost' at"):
        preparation = prepare(make_options(collection), lines.append)
    counts = preparation.counts
    assert (counts["train"], counts["train_skipped"], counts["train_without_relevant"]) == (
        27,
        2,
        1,
    )
    assert len(preparation.train.number) == 24
    said = next(line for line in lines if line.startswith("train queries"))
    assert "24 of 27" in said and "2 queries skipped" in said
    assert "1 no candidate term" in said and "1 no token that any document contains" in said
    assert "1 without a relevant document" in said
