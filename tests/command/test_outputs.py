"""No output of a command replaces a file: every option that names a path is in the table."""

import argparse
import os
import shutil

import pytest

from kytolly.command import entry
from kytolly.command.exits import OneLineParser
from kytolly.command.table import COMMANDS, SEARCH_COMMANDS, command_module
from kytolly.deployment.zoo import run_path
from tests.helpers.written_runs import write_run

# Some need a run that was trained: tests/deployment/test_export_command.py has --out.
OUTPUTS = {"--cluster-dir", "--log-dir", "--out", "--study", "--figure"}
INPUTS = {"--config", "--init", "run_dirs", "--collection", "--resume", "run_dir"}
CONTENT = {"f.yaml": "seed: 1\n", "q.jsonl": '{"_id": "q", "text": "word"}\n', "plot.txt": "x"}
TRAIN = ["train", "dqn", "--env", "CartPole-v1"]
CASES = [
    [*TRAIN, "--config", "f.yaml", "--log-dir"],
    [*TRAIN, "--log-dir"],
    ["benchmark", "learning", "--figure"],
    ["plot", "run", "--out"],
    ["record", "zoo:dqn/CartPole-v1", "--out"],
    ["tune", "ppo", "--env", "CartPole-v1", "--study"],
]
ODD_NAMES = ["/".join(["x" * 199] * 25), "x" * 300, os.fsdecode(b"run\xff"), "a\0b", "/proc/new"]
NAMES = ["f.yaml", "data/../f.yaml", "link", "hard", "data", "data/q.jsonl", "plot.txt", "folder"]


def command_parsers(names):
    """The parsers of some commands."""
    parsers = [OneLineParser(prog=name) for name in names]
    for name, parser in zip(names, parsers, strict=True):
        command_module(name).add_options(parser, [name])
    return parsers


def paths_in_options(parsers):
    """The options of parsers that name a path, each of which refuses what is none."""
    found = set()
    for parser in parsers:
        for action in parser._actions:
            if action.metavar in ("FILE", "DIR", "OUT", "RUN"):
                found.add(([*action.option_strings, action.dest])[0])
                with pytest.raises(argparse.ArgumentTypeError, match="expected a path"):
                    action.type("a\0b")
    return found


def test_every_option_that_names_a_path_is_an_input_or_an_output():
    assert (
        paths_in_options(command_parsers(COMMANDS.keys() - SEARCH_COMMANDS.keys()))
        == OUTPUTS | INPUTS
    )


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("argv", CASES, ids=lambda argv: " ".join(argv[:5]))
def test_an_output_whose_path_no_file_can_have_is_refused_before_work_begins(
    argv, name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_path("zoo:ppo/CartPole-v1"), "run")
    shutil.copy(write_run(tmp_path / "written", [1.0, 2.0]) / "metrics.csv", "run")
    (tmp_path / "f.yaml").write_text("seed: 1\n")
    end = ".png" if argv[0] in ("plot", "benchmark") else ".mp4" if argv[0] == "record" else ""
    end = ".db" if argv[0] == "tune" else end
    check_odd_output(entry.main, [*argv, name + end], capsys, tmp_path)


def check_odd_output(main, argv, capsys, tmp_path):
    """A command line is refused in one line, and writes nothing."""
    before = sorted(tmp_path.rglob("*"))
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    assert len(captured.err) < 1_100 and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("argv", CASES, ids=lambda argv: " ".join(argv[:5]))
def test_an_output_that_names_a_file_of_the_user_is_refused(
    argv, name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    check_output_of_the_user(entry.main, [*argv, name], capsys, tmp_path)


def check_output_of_the_user(main, argv, capsys, tmp_path):
    """A command line whose output is a file of the user is refused; the file stays as it is."""
    (tmp_path / "data" / "qrels").mkdir(parents=True)
    for file, text in CONTENT.items():
        (tmp_path / file).write_text(text)
        (tmp_path / "data" / file).write_text(text)
    os.link("f.yaml", "hard")
    os.symlink("f.yaml", "link")
    os.symlink("data", "folder")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    after = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert before == after
