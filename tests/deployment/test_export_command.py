"""`kytolly export` on a run: what it prints, and what it refuses in one line."""

import json
import shutil

import numpy as np
import pytest

import kytolly
from kytolly.command import entry
from kytolly.deployment import litert


@pytest.fixture
def run_dir(dqn, tmp_path):
    return shutil.copytree(dqn.path, tmp_path / "run")


def test_a_run_is_exported_and_the_report_printed(run_dir, capsys):
    words = ["export", str(run_dir), "--format", "litert"]
    assert entry.main(words) == 0
    output = capsys.readouterr().out
    size = (run_dir / "policy.tflite").stat().st_size
    assert f"{run_dir / 'policy.tflite'} (litert, float32, {size:,} bytes)" in output
    assert "1,000 observations from playing CartPole-v1" in output
    assert "1,000 of 1,000 actions equal" in output
    assert "Microseconds for one action: agent " in output


@pytest.mark.parametrize("name", ["saved_model", "a[1] \\ 'b\" $HOME%20#ü"])
def test_any_name_can_be_exported_to_and_links_beside_it_are_not_followed(name, run_dir, tmp_path):
    (outside := tmp_path / "outside").mkdir()
    (outside / "own.txt").write_text("own")
    (run_dir / f".partial-{name}").symlink_to(outside, target_is_directory=True)
    report = kytolly.export(kytolly.load(run_dir), "saved_model", run_dir / name)
    assert (report.path / "1" / "saved_model.pb").is_file()
    assert [path.name for path in outside.iterdir()] == ["own.txt"]


def test_json_holds_the_returns_of_agent_and_quantized_file(run_dir, capsys):
    words = ["export", str(run_dir), "--format", "litert", "--quantize", "int8", "--episodes", "3"]
    assert entry.main([*words, "--out", str(run_dir / "new" / "small.tflite"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["path"] == str(run_dir / "new" / "small.tflite")
    assert [summary["returns"][name]["episodes"] for name in ("agent", "file")] == [3, 3]


def test_the_agent_of_a_training_and_the_loaded_one_export_the_same(dqn, run_dir, tmp_path):
    report = kytolly.export(kytolly.load(run_dir), "litert")
    assert report.path == run_dir / "policy.tflite"
    kytolly.export(dqn.result.agent, "litert", tmp_path / "other.tflite")
    obs = {"observation": np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)}
    values = [litert.load(p)(obs)["values"] for p in (report.path, tmp_path / "other.tflite")]
    assert values[0].tolist() == values[1].tolist()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "coreml"], "invalid choice: 'coreml'"),
        ([], "--format"),
        (["--format", "onnx", "--quantize", "int8"], "which onnx does not have"),
        (["--format", "litert", "--out", "{run}"], "exists, expected a new path"),
        (["--format", "saved_model", "--out", "/proc/model"], "cannot be written"),
        (["--format", "litert", "--out", "{run}/" + "x" * 250], "cannot be written"),
        (["--format", "litert", "--env", "Pendulum-v1"], "expected what the agent was"),
        (["--format", "litert", "--env", "Nowhere-v0"], "unknown environment"),
    ],
)
def test_what_does_not_fit_is_one_line_and_status_2(words, message, run_dir, capsys):
    before = sorted(run_dir.rglob("*"))
    assert entry.main(["export", str(run_dir), *(w.format(run=run_dir) for w in words)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(run_dir.rglob("*")) == before


def test_an_agent_of_the_zoo_is_exported_to_a_path_that_is_named():
    with pytest.raises(ValueError, match="got no path"):
        kytolly.export(kytolly.load("zoo:DQN/CartPole-v1"), "litert")


def test_a_run_without_best_weights_is_refused(run_dir, capsys):
    (run_dir / "best.keras").unlink()
    assert entry.main(["export", str(run_dir), "--format", "onnx"]) == 2
    error = capsys.readouterr().err
    assert "best.keras does not exist" in error and error.count("\n") == 1


def test_a_missing_package_is_one_line(run_dir, capsys, monkeypatch):
    from kytolly.deployment import export

    found = export.importlib.util.find_spec
    monkeypatch.setattr(
        export.importlib.util, "find_spec", lambda n: None if n == "tf2onnx" else found(n)
    )
    assert entry.main(["export", str(run_dir), "--format", "onnx"]) == 2
    error = capsys.readouterr().err
    assert 'pip install "kytolly[export]"' in error and error.count("\n") == 1
