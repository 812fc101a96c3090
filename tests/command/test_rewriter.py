"""The command that trains a rewriter."""

import json
import re

import pytest

pytest.importorskip("wordllama")

from kytolly.command import entry
from tests.text.test_rewriter import write_animals

FLAGS = (
    "--total-updates 2 --batch-size 4 --num-buckets 1 --units 2 --max-target-length 2 --no-xla "
    "--no-pretrained --no-attention --evaluation-interval-updates 2"
).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rewriter")
    write_animals(folder / "animals")
    return folder


def test_a_rewriter_is_trained_and_continues(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    argv = ["train", "rewriter", "--collection", "animals"]
    assert entry.main([*argv, "--log-dir", "run", *FLAGS]) == 0
    out = capsys.readouterr().out
    assert "Share of the 2 best terms" in out and out.endswith("run\n")
    (folder / "animals" / "qrels" / "test.tsv").unlink()
    assert entry.main([*argv, "--resume", "run", "--total-updates", "3", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["updates"] == 3 and summary["test"] is None


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "--collection is missing"),
        (["--collection", "none"], "none does not exist"),
        (["--collection", "animals", "--target", "words"], "target is 'words', expected"),
        (["--collection", "animals", "--unit", "1"], "--unit is not an option.*'--units'"),
        (["--collection", "animals", "--class-weights", "auto"], "has no such thing"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, monkeypatch, flags, message):
    monkeypatch.chdir(folder)
    assert entry.main(["train", "rewriter", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    assert re.search(message, captured.err)
