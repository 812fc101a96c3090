"""Every example and every Python block of the guides runs, shortened to 200 env steps."""

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

from kytolly import trainer
from kytolly.agent.algorithms import ALGORITHMS, make_config
from tests.helpers.cases import rest_learning

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("[!s]*.py"))  # what serves: tests/deployment
GUIDES = [
    "getting_started.md",
    "your_environment.md",
    "memory_tasks.md",
    "your_keras_model.md",
    "recipes.md",
    "custom_parts.md",
    "memory.md",
    "algorithms/ppo.md",
]
SHORT = {
    "total_env_steps": 200,
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "evaluation_interval_env_steps": 200,
    "hidden_units": (4,),
}
SHORT_OF = {
    "train_dqn": {"warmup_env_steps": 64, "batch_size": 8},
    "train_ppo": {"rollout_steps": 16, "epochs": 1, "num_minibatches": 2},
}
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def short_runs(monkeypatch, tmp_path):
    """Trainings last 200 env steps, and `runs/` lies in a temporary folder."""
    seen = []

    def shortened(name):
        train = getattr(trainer.Trainer, name)

        def short_train(self, train_cfg, *args, **kwargs):
            cfg = dataclasses.replace(train_cfg, xla=False, **SHORT, **SHORT_OF[name])
            seen.append(train(self, cfg, *args, **kwargs))
            return seen[-1]

        return short_train

    for name in SHORT_OF:
        monkeypatch.setattr(trainer.Trainer, name, shortened(name))
    monkeypatch.chdir(tmp_path)
    return seen


@pytest.mark.parametrize(
    "path",
    rest_learning(EXAMPLES, [ROOT / "examples" / "train_cartpole.py"]),
    ids=lambda path: path.stem,
)
def test_example_runs(path, short_runs, capsys):
    runpy.run_path(str(path), run_name="__main__")
    (result,) = short_runs
    assert result.summary["env_steps"] >= 200
    assert str(result.run_dir) in capsys.readouterr().out


@pytest.mark.parametrize("name", rest_learning(GUIDES, ["getting_started.md"]))
def test_python_blocks_of_the_guide_run_in_order(name, short_runs):
    blocks = PYTHON_BLOCK.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert blocks
    namespace = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    assert short_runs


PAGES = {f"algorithms/{name}": name for name in ALGORITHMS if name not in ("ddqn", "ppo-kl")}


@pytest.mark.parametrize("page", [*PAGES, "memory"])
def test_a_page_states_the_defaults(page):
    configs = [make_config({"algorithm": name}) for name in (PAGES.get(page, "dqn"), "ppo")]
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\w.,+ -]+) \|", text, re.MULTILINE)
    assert len(rows) >= (15 if page in ("algorithms/dqn", "algorithms/ppo") else 6)
    for name, stated in rows:
        default = next(getattr(config, name) for config in configs if hasattr(config, name))
        words = {None: "none", True: "yes", False: "no"}
        if isinstance(default, bool) or default is None:
            expected = words[default]
        elif isinstance(default, int):
            expected = f"{default:,}"
        else:
            expected = str(default).strip("()")
        assert stated == expected, name
