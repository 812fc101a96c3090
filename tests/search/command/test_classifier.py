"""The commands that train a classifier and use it."""

import csv
import json

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("wordllama")

from kytolly.command import entry
from tests.search.text.labeled_files import write_labeled

FLAGS = (
    "--total-updates 8 --batch-size 16 --num-buckets 1 --filters 4 --no-train-embedding "
    "--learning-rate 0.01 --max-length 16 --no-xla"
).split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    data = write_labeled(folder / "a.csv")
    argv = ["train", "classifier", "--data", str(data), "--log-dir", str(folder / "run")]
    assert entry.main([*argv, *FLAGS]) == 0
    return folder


def complaint(argv, capsys):
    assert entry.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    return captured.err


def test_texts_of_a_file_are_classified(run, capsys):
    (run / "b.txt").write_text("sweet apple fruit\n\nengine wheel, road\n", encoding="utf-8")
    assert entry.main(["classify", str(run / "run"), str(run / "b.txt")]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["class"] for row in rows] == ["food", "traffic"]
    assert rows[1]["text"] == "engine wheel, road" and float(rows[1]["probability"]) > 0.5
    out = run / "out.csv"
    argv = ["classify", str(run / "run"), str(run / "a.csv"), "--output", str(out), "--json"]
    assert entry.main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["texts"] == sum(found["classes"].values()) == 200
    written = out.read_text("utf-8")
    assert written.count("\n") == 201
    (run / "link.csv").symlink_to(out)
    for name in ("out.csv", "link.csv"):
        said = complaint([*argv[:4], str(run / name)], capsys)
        assert f"{name} exists, expected a new file" in said
    assert out.read_text("utf-8") == written


@pytest.mark.learning
def test_a_run_continues_with_its_own_settings(run, capsys):
    argv = ["train", "classifier", "--data", str(run / "a.csv"), "--resume", str(run / "run")]
    assert entry.main([*argv, "--total-updates", "12", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["updates"] == 12 and summary["test"]["macro_f1"] > 0.5
    said = complaint(["evaluate", str(run / "run")], capsys)
    assert "run is a run that trained a text classifier, expected one of an agent" in said
    assert f"`kytolly train classifier --data FILE --resume {run / 'run'}` measures it" in said


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "--data is missing"),
        (["--data", "a.csv", "--text-column", "txt"], "has no column 'txt'.*Did you mean 'text'"),
        (["--data", "none.csv"], "does not exist"),
        (["--data", "a.csv", "--filters", "0"], "filters is 0, expected a whole number"),
        (["--data", "a.csv", "--filter", "1"], "--filter is not an option.*'--filters'"),
        (["--data", "a.csv", "--resume", "run", "--log-dir", "x"], "Leave --log-dir, "),
        (["--data", "a.csv", "--resume", "none"], "none is no run"),
    ],
)
def test_bad_input_is_one_line(run, capsys, monkeypatch, flags, message):
    monkeypatch.chdir(run)
    import re

    assert re.search(message, complaint(["train", "classifier", *flags], capsys))


def test_what_cannot_be_classified_is_refused(run, capsys, monkeypatch):
    monkeypatch.chdir(run)
    (run / "empty.txt").write_text("\n", encoding="utf-8")
    assert "empty.txt has no text" in complaint(["classify", "run", "empty.txt"], capsys)
    assert "x is no run" in complaint(["classify", "x", "a.csv"], capsys)
