"""No output of a command replaces a file: every option that names a path is in the table."""

import argparse
import os
import shutil

import pytest

from kytolly.command import entry, train_optimized
from kytolly.command.exits import OneLineParser
from kytolly.deployment.zoo import run_path
from tests.helpers.written_runs import write_run
from tests.reformulation.tiny_collection import write_collection

# Some need a run that was trained: tests/reformulation/test_reformulator.py has --run-file,
# tests/text_command/test_classifier.py --output, and tests/deployment/test_export_command.py --out.
OUTPUTS = {"--log-dir", "--out", "--run-file", "--study", "--figure", "--output"}
INPUTS = {"--config", "--init", "run_dirs", "--collection", "--queries", "--resume", "run_dir"}
INPUTS |= {"file", "--rewriter", "--ranker", "--classifier"}
CONTENT = {"f.yaml": "seed: 1\n", "q.jsonl": '{"_id": "q", "text": "word"}\n', "plot.txt": "x"}
TRAIN = ["train", "dqn", "--env", "CartPole-v1"]
CASES = [
    [*TRAIN, "--config", "f.yaml", "--log-dir"],
    [*TRAIN, "--log-dir"],
    ["train_optimized", "--config", "f.yaml", "--log-dir"],
    ["train_optimized", "--collection", "data", "--log-dir"],
    ["benchmark", "reformulation-scale", "--collection", "data", "--figure"],
    ["benchmark", "learning", "--figure"],
    ["plot", "run", "--out"],
    ["record", "zoo:dqn/CartPole-v1", "--out"],
    ["tune", "ppo", "--env", "CartPole-v1", "--study"],
]
NAMES = ["f.yaml", "data/../f.yaml", "link", "hard", "data", "data/q.jsonl", "plot.txt", "folder"]


def parsers():
    for name in entry.COMMANDS:
        parser = OneLineParser(prog=name)
        entry.command_module(name).add_options(parser, [name])
        yield name, parser
    yield "train_optimized", train_optimized.make_parser()


def test_every_option_that_names_a_path_is_an_input_or_an_output():
    found = set()
    for _, parser in parsers():
        for action in parser._actions:
            if action.metavar in ("FILE", "DIR", "OUT", "RUN"):
                found.add(([*action.option_strings, action.dest])[0])
                with pytest.raises(argparse.ArgumentTypeError, match="expected a path"):
                    action.type("a\0b")
    assert found == OUTPUTS | INPUTS


@pytest.mark.parametrize(
    "name", ["/".join(["x" * 199] * 25), "x" * 300, os.fsdecode(b"run\xff"), "a\0b", "/proc/new"]
)
@pytest.mark.parametrize("argv", CASES, ids=lambda argv: " ".join(argv[:5]))
def test_an_output_whose_path_no_file_can_have_is_refused_before_work_begins(
    argv, name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_path("zoo:ppo/CartPole-v1"), "run")
    shutil.copy(write_run(tmp_path / "written", [1.0, 2.0]) / "metrics.csv", "run")
    collection = str(write_collection(tmp_path / "data"))
    argv = [collection if word == "data" else word for word in argv]
    (tmp_path / "f.yaml").write_text(f"collection: {collection}\n")
    if argv[0] == "train":
        (tmp_path / "f.yaml").write_text("seed: 1\n")
    end = ".png" if argv[0] in ("plot", "benchmark") else ".mp4" if argv[0] == "record" else ""
    end = ".db" if argv[0] == "tune" else end
    main = train_optimized.main if argv[0] == "train_optimized" else entry.main
    before = sorted(tmp_path.rglob("*"))
    assert main([*argv[argv[0] == "train_optimized" :], name + end]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    assert len(captured.err) < 1_100 and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("argv", CASES, ids=lambda argv: " ".join(argv[:5]))
def test_an_output_that_names_a_file_of_the_user_is_refused(
    argv, name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "qrels").mkdir(parents=True)
    for file, text in CONTENT.items():
        (tmp_path / file).write_text(text)
        (tmp_path / "data" / file).write_text(text)
    os.link("f.yaml", "hard")
    os.symlink("f.yaml", "link")
    os.symlink("data", "folder")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    main = train_optimized.main if argv[0] == "train_optimized" else entry.main
    assert main([*argv[argv[0] == "train_optimized" :], name]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    after = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert before == after
