"""The examples of serving run without kytolly, and those of small runtimes without TensorFlow."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kytolly
from tests.deployment.exported_agents import agent_of

EXAMPLES = Path(__file__).parents[2] / "examples"
ALONE = """
import runpy, sys
sys.modules["kytolly"] = sys.modules["tensorflow"] = None  # importing them fails
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize(
    "name, format",
    [
        ("masked parts", "litert"),
        ("image", "onnx"),
        pytest.param("masked parts", "onnx", marks=pytest.mark.learning),
        pytest.param("image", "litert", marks=pytest.mark.learning),
    ],
)
def test_small_runtimes_need_neither_kytolly_nor_tensorflow(name, format, tmp_path):
    agent, file = agent_of(name), tmp_path / "file"
    kytolly.export(agent, format, file)
    program = f"import sys; sys.argv = sys.argv[1:]\n{ALONE.replace('argv[1]', 'argv[0]')}"
    words = [sys.executable, "-c", program, EXAMPLES / f"serve_{format}.py", file]
    output = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert output.returncode == 0, output.stderr
    spec = agent.env_spec.obs
    entries = spec if isinstance(spec, dict) else {"": spec}
    ones = {k: np.ones([2, *s.shape], s.dtype.as_numpy_dtype) for k, s in entries.items()}
    assert json.loads(output.stdout)["action"] == agent.act(ones.get("", ones)).tolist()


def test_the_request_is_answered_as_by_a_server(tmp_path, monkeypatch, capsys):
    agent, folder = agent_of("masked parts"), tmp_path / "model"
    kytolly.export(agent, "saved_model", folder)
    program = EXAMPLES / "serve_saved_model.py"
    assert "import kytolly" not in program.read_text() and "from kytolly" not in program.read_text()
    monkeypatch.setattr(sys, "argv", [str(program), str(folder)])
    capsys.readouterr()
    runpy.run_path(str(program), run_name="__main__")
    answer = json.loads(capsys.readouterr().out)["predictions"]
    rows = json.loads((folder / "request.json").read_text())["instances"]
    obs = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    assert [one["action"] for one in answer] == agent.act(obs).tolist()
    assert set(answer[0]) == {"action", "params", "value"}
