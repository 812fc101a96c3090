"""The command that trains a re-ranker."""

import json
import re

import pytest

pytest.importorskip("wordllama")

from kytolly.command import entry
from tests.search.text.ranked_texts import write_ranking

FLAGS = (
    "--total-updates 2 --batch-size 4 --num-buckets 1 --width 4 --layers 1 --heads 2 --depth 5 "
    "--max-length 24 --max-question-length 8 --samples 8 --no-xla"
).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ranker")
    write_ranking(made / "data", topics=24)
    return made


def test_a_run_is_trained_and_continues_with_its_own_settings(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    argv = ["train", "ranker", "--collection", "data"]
    assert entry.main([*argv, "--log-dir", "run", *FLAGS]) == 0
    out = capsys.readouterr().out
    assert "test, 6 queries: ndcg@10 of fused" in out and out.rstrip().endswith("run")
    assert (folder / "run" / "ranker.json").is_file() and (folder / "run" / "best.keras").is_file()
    assert entry.main([*argv, "--resume", "run", "--total-updates", "4", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["updates"] == 4 and summary["test"]["queries"] == 6
    assert entry.main(["evaluate", "run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "run is a run that trained a re-ranker, expected" in said
    assert "`kytolly train ranker --collection DIR --resume run` measures it again" in said


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "--collection is missing"),
        (["--collection", "none"], "none does not exist"),
        (["--collection", "data", "--heads", "3"], "heads is 3, expected a divisor of width"),
        (["--collection", "data", "--sample", "1"], "--sample is not an option.*'--samples'"),
        (["--collection", "data", "--resume", "r", "--log-dir", "x"], "Leave --log-dir, --config"),
        (["--collection", "data", "--resume", "none"], "none is no run"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, monkeypatch, flags, message):
    monkeypatch.chdir(folder)
    assert entry.main(["train", "ranker", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    assert re.search(message, captured.err)


def test_settings_of_another_kind_of_model_are_refused(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "a.yaml").write_text("algorithm: classifier\n", "utf-8")
    assert entry.main(["train", "ranker", "--collection", "data", "--config", "a.yaml"]) == 2
    assert "this is ranker, and those are settings of classifier" in capsys.readouterr().err
