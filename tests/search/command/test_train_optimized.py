"""The command that trains the query-reformulation agent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import yaml

from kytolly.command import entry
from kytolly.search.benchmark.reformulation import gain_lines
from kytolly.search.command import train_optimized
from kytolly.search.reformulate.options import ReformulationOptions, read_options
from tests.search.reformulate.tiny_collection import SETTINGS, write_collection

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    write_collection(folder / "tiny")
    training = {**SETTINGS["training"], "warm_start_epochs": 1, "held_out_folds": 0}
    settings = {**SETTINGS, "training": training, "collection": str(folder / "tiny")}
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    return folder


def error_line(argv, capsys):
    assert train_optimized.main([str(part) for part in argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1, captured
    return captured.err


def test_table(output):
    """The lines of the test metrics."""
    lines = output.splitlines()
    (first,) = (place for place, line in enumerate(lines) if line.startswith("Test: "))
    return lines[first : lines.index("Time:")]


test_table.__test__ = False


def test_one_epoch_and_the_test_queries(folder, capsys):
    flags = "--device cpu --epochs 1 --batch-size 20 --seed 3 --no-amp --test --log-dir".split()
    argv = ["--config", str(folder / "settings.yaml"), *flags, str(folder / "run")]
    assert train_optimized.main(argv) == 0
    captured = capsys.readouterr()
    assert "difference (95% interval)" in captured.out and "greedy ceiling" in captured.out
    assert all(len(line) <= 100 for line in test_table(captured.out))
    assert "Embedding cache: " in captured.out and "warm start" in captured.out
    assert "pre-computation: reading" in captured.err
    options = read_options(folder / "run" / "reformulation.yaml")
    assert (options.seed, options.training.epochs, options.training.batch_size) == (3, 1, 20)
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["test"]["queries"] == 10 and result["seed"] == 3
    for name in ("bm25", "rm3", "rocchio", "fused", "agent", "agent_fused", "ceiling"):
        assert (folder / "run" / f"test_{name}.run").is_file()
    assert (folder / "run" / "calibration.png").stat().st_size > 10_000


@pytest.mark.learning
def test_a_run_without_ppo_is_a_run(folder, capsys):
    argv = ["--config", str(folder / "settings.yaml"), "--epochs", "0", "--device", "cpu"]
    assert train_optimized.main([*argv, "--log-dir", str(folder / "listwise"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["env_steps"] == 0 and result["network"] == "warm start"
    assert entry.main(["reformulate", str(folder / "listwise"), "key12 noise1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after"]


def test_with_json_the_last_line_is_one_object(folder, capsys, monkeypatch):
    from kytolly.search.reformulate import train as reformulation_training

    def train(options, gpu, log_dir, test, profile, say):
        say("progress")
        return {"run_dir": str(log_dir), "epochs": options.training.epochs, "gpu": gpu}

    monkeypatch.setattr(reformulation_training, "train", train)
    argv = ["--epochs", "1", "--json", "--device", "cpu", "--log-dir", str(folder / "json")]
    assert train_optimized.main(argv) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {"run_dir": str(folder / "json"), "epochs": 1, "gpu": False}


@pytest.mark.learning
def test_the_baseline_flow_is_run_and_compared(folder, capsys, monkeypatch):
    monkeypatch.setenv("KYTOLLY_XLA", "off")
    argv = ["--config", str(folder / "settings.yaml"), "--device", "cpu", "--baseline-flow", "0.03"]
    assert train_optimized.main([*argv, "--json"]) == 0
    assert os.environ["KYTOLLY_XLA"] == "off"  # the command leaves it off
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] > 0 and found["ratio_to_sequential"] > 0
    assert "x the fastest flow of one query at a time" in "\n".join(gain_lines(found))
    calls = found["calls"]["embedding calls"]
    assert calls["compiled_run"] < calls["compiled_one_pass"] < calls["one_query"]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--epochs", "-1"], "expected a whole number of at least 0"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
        (["--config", "missing.yaml"], "missing.yaml cannot be read"),
        (["--collection", "missing"], "missing does not exist"),
        (["--learning-rat", "1"], "unrecognized arguments"),
        (["--seed", "-1"], "'-1' was found, expected a whole number of at least 0"),
        (["--baseline-flow", "0"], "expected seconds above 0"),
        (["--baseline-flow", "--rewriter", "x"], "compares flows without a rewriter"),
        (["--generated", "0"], "'0' was found, expected a whole number above 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value[0],
)
def test_bad_input_is_one_line_and_exit_status_2(flags, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in error_line(flags, capsys)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_flags_win_over_the_file(folder):
    flags = ["--config", str(folder / "settings.yaml"), "--rewriter", "runs/r", "--generated", "7"]
    found = train_optimized.given_options(train_optimized.parse(flags))
    assert (found.retrieval.rewriter, found.retrieval.generated) == ("runs/r", 7)
    assert found.retrieval.candidates == 8 and found.retrieval.width == 8 + 7 + 12
    without = train_optimized.given_options(train_optimized.parse(flags[:2]))
    assert without.retrieval.rewriter is None and without.retrieval.width == 8 + 12


def test_a_gpu_that_is_not_there_is_said_at_once(folder, capsys, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])
    argv = ["--config", folder / "settings.yaml", "--device", "cuda"]
    assert "TensorFlow sees no GPU" in error_line(argv, capsys)


def test_a_run_that_exists_is_left_alone(folder, capsys, tmp_path):
    (tmp_path / "result.json").write_text("precious")
    argv = ["--config", folder / "settings.yaml", "--log-dir", tmp_path]
    assert "exists and is not empty" in error_line(argv, capsys)
    assert (tmp_path / "result.json").read_text() == "precious"


def test_ctrl_c_says_where_the_run_is(folder, capsys, monkeypatch):
    from kytolly.search.reformulate import train as reformulation_training

    def interrupt(*args, **options):
        raise KeyboardInterrupt(reformulation_training.saved_where(folder))

    monkeypatch.setattr(reformulation_training, "train", interrupt)
    assert train_optimized.main(["--config", str(folder / "settings.yaml")]) == 130
    assert "nothing is saved" in capsys.readouterr().err
    (folder / "best.keras").touch()
    assert train_optimized.main(["--config", str(folder / "settings.yaml")]) == 130
    assert f"kytolly reformulate {folder}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["msa_optimized_cpu.yaml", "msa_optimized_gpu.yaml"])
def test_the_configurations_hold_the_defaults(name):
    options = read_options(ROOT / "configs" / name)
    default = ReformulationOptions()
    assert options.retrieval == default.retrieval and options.rl_agent == default.rl_agent
    assert options.training.use_amp == ("gpu" in name)


def test_the_door_needs_no_tensorflow_for_help():
    done = subprocess.run(
        [sys.executable, ROOT / "train_optimized.py", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "", "PYTHONVERBOSE": "1"},
    )
    assert done.returncode == 0 and "--device" in done.stdout
    assert "import 'yaml'" in done.stderr and "import 'tensorflow'" not in done.stderr
