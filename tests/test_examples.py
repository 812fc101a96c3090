"""Every example and every Python block of the guides runs, shortened to a few hundred env steps."""

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

import trainer
from config import DQNConfig

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GUIDES = ["getting_started.md", "your_environment.md", "your_keras_model.md"]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def short_runs(monkeypatch, tmp_path):
    """Trainings last 300 env steps, and `runs/` lies in a temporary folder."""
    train_dqn = trainer.Trainer.train_dqn
    limits = {
        "total_env_steps": 300,
        "warmup_env_steps": 128,
        "batch_size": 16,
        "evaluation_episodes": 1,
        "final_evaluation_episodes": 2,
        "evaluation_interval_env_steps": 300,
    }
    seen = []

    def shortened(self, train_cfg, *args, **kwargs):
        short = dataclasses.replace(train_cfg, xla=False, **limits)
        seen.append(train_dqn(self, short, *args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(trainer.Trainer, "train_dqn", shortened)
    monkeypatch.chdir(tmp_path)
    return seen


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, short_runs, capsys):
    runpy.run_path(str(path), run_name="__main__")
    (result,) = short_runs
    assert result.summary["env_steps"] >= 300
    assert str(result.run_dir) in capsys.readouterr().out


@pytest.mark.parametrize("name", GUIDES)
def test_python_blocks_of_the_guide_run_in_order(name, short_runs):
    blocks = PYTHON_BLOCK.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert blocks
    namespace = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    assert short_runs


def test_the_dqn_page_states_the_defaults():
    page = (ROOT / "docs" / "algorithms" / "dqn.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,e -]+) \|", page, re.MULTILINE)
    assert len(rows) >= 15
    for name, stated in rows:
        default = getattr(DQNConfig(), name)
        expected = f"{default:,}" if isinstance(default, int) else str(default).strip("()")
        assert stated == expected, name
