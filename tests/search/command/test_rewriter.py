"""The command that trains a rewriter."""

import json
import re
import shlex

import pytest

pytest.importorskip("wordllama")

from kytolly.command import entry
from kytolly.search.text.fine_tune_rewriter import SaveRewriter
from tests.search.text.collection_files import write_animals

FLAGS = (
    "--total-updates 2 --batch-size 4 --num-buckets 1 --units 2 --max-target-length 2 --no-xla "
    "--no-pretrained --no-attention --evaluation-interval-updates 2 --held-out-folds 0"
).split()


PPO = (
    "--total-env-steps 64 --num-envs 8 --rollout-steps 2 --checkpoint-interval-env-steps 32 "
    "--log-interval-env-steps 16 --no-xla"
).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rewriter")
    write_animals(folder / "animals")
    return folder


@pytest.fixture(scope="module")
def plain(folder):
    """A rewriter to improve, and the words that ask for it."""
    others, run = str(write_animals(folder / "others")), str(folder / "plain")
    argv = ["train", "rewriter", "--collection", others]
    assert entry.main([*argv, "--log-dir", run, *FLAGS]) == 0
    return [*argv, "--fine-tune", run]


def complaint(argv, capsys):
    capsys.readouterr()
    assert entry.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1, captured
    return captured.err


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


def test_a_rewriter_is_fine_tuned(folder, plain, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert entry.main([*plain, "--log-dir", "tuned", *PPO]) == 0
    out = capsys.readouterr().out
    assert "Gain in ndcg@10" in out and "test  after PPO" in out and out.endswith("tuned\n")
    assert "nothing is no run" in complaint([*plain[:-1], "nothing"], capsys)
    said = complaint([*plain, "--resume", "plain"], capsys)
    assert "this is ppo-kl, and those are settings of rewriter" in said
    found = complaint(["evaluate", "tuned"], capsys)
    assert "tuned is a run that trained a query rewriter, by PPO, expected one of an agent" in found
    assert f"--fine-tune {plain[-1]} --resume tuned` measures it again" in found
    found = complaint(["evaluate", "plain", "--episodes", "3"], capsys)
    assert "plain is a run that trained a query rewriter, expected one of an agent" in found
    assert "`kytolly train rewriter --collection DIR --resume plain` measures it again" in found


@pytest.mark.learning
def test_an_interrupted_fine_tuning_names_the_command_that_continues(
    folder, plain, capsys, monkeypatch
):
    def interrupt(callback, state):
        if state.env_steps == 32:
            raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    with monkeypatch.context() as patch:
        patch.setattr(SaveRewriter, "on_log", interrupt)
        assert entry.main([*plain, "--log-dir", "some run", *PPO]) == 130
    (said,) = re.findall("after 32 env steps. Continue it with `(.*)`", capsys.readouterr().err)
    words = [plain[3] if word == "DIR" else word for word in shlex.split(said)]
    assert words == ["kytolly", *plain, "--resume", "some run"]
    for flags, env_steps in (([], 64), (["--total-env-steps", "80"], 80)):
        assert entry.main([*words[1:], *flags, "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
        assert summary["env_steps"] == env_steps
        assert set(summary["gains"]) == {"train", "dev", "test"}


def test_the_help_says_what_each_kind_of_training_takes(capsys):
    words = ["train", "rewriter", "--help"]
    with pytest.raises(SystemExit):
        entry.main(words)
    supervised = capsys.readouterr().out
    assert "--fine-tune RUN" in supervised and "--kl-coef" not in supervised
    with pytest.raises(SystemExit):
        entry.main([*words, "--fine-tune", "a"])
    tuned = capsys.readouterr().out
    assert "--kl-coef" in tuned and "--scheduled-sampling" not in tuned and "rewriter\n" in tuned


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
