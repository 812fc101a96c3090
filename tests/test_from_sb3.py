"""Every line of docs/from_stable_baselines3.md that is ours runs, shortened."""

import dataclasses
import re
import shlex
from pathlib import Path

import gymnasium
import keras
import numpy as np
import pytest

from kytolly import trainer
from kytolly.callback.base import Callback
from kytolly.command import entry
from tests.helpers.cases import rest_learning

PAGE = (Path(__file__).parents[1] / "docs" / "from_stable_baselines3.md").read_text("utf-8")
CODE = re.compile(r"^\| .* \| `(.*)`[^`|]*\|$", re.MULTILINE)
SHORT = {
    "xla": False,
    "hidden_units": (4,),
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "evaluation_interval_env_steps": 200,
}
SHORT_OF = {
    "dqn": {"warmup_env_steps": 64, "batch_size": 8},
    "ppo": {"rollout_steps": 16, "epochs": 1, "num_minibatches": 2},
}
ONLY_PARSED = ("watch", "tune")  # a window; several minutes


@pytest.fixture(scope="module")
def namespace(tmp_path_factory):
    """Names that the page's lines may use, beside what the lines before them made."""

    def make_env():  # local: worker processes need not import this module and TensorFlow for it
        return gymnasium.make("CartPole-v1")

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    names = {"make_env": make_env, "my_model": model, "MyCallback": Callback}
    names |= {"obs": np.zeros(4, np.float32), "batch_of_obs": np.zeros((3, 4), np.float32)}
    names["mask"] = np.array([0, 0, 0, 1, 0, 0], np.int8)
    exec(re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1], names)
    patch = pytest.MonkeyPatch()
    patch.chdir(tmp_path_factory.mktemp("runs"))
    train = trainer.Trainer.train

    def short_train(self, cfg, *args, **options):
        own = SHORT | SHORT_OF[cfg.algorithm] | {"total_env_steps": cfg.total_env_steps // 250}
        return train(self, dataclasses.replace(cfg, **own), *args, **options)

    patch.setattr(trainer.Trainer, "train", short_train)
    yield names
    patch.undo()


LINES = CODE.findall(PAGE)
LONG = ("runs/b", "runs/c", "runs/d", "runs/e", "masked_agent", "kytolly train", "kytolly record")


def test_the_page_has_lines():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    words = [row for row in rows if re.search(r"\| (nothing|the same method)", row)]
    heads = [row for row in rows if row.startswith(("| Stable", "| RL Base", "| ---"))]
    assert len(LINES) == len(rows) - len(words) - len(heads) > 40


@pytest.mark.parametrize(
    "line", rest_learning(LINES, [line for line in LINES if not any(name in line for name in LONG)])
)
def test_a_line_of_the_page_runs(line, namespace, capsys):
    if not line.startswith("kytolly "):
        exec(line, namespace)
    elif line.split()[1] in ONLY_PARSED:
        assert entry.parse(shlex.split(line)[1:]).command == line.split()[1]
    else:
        assert entry.main(shlex.split(line)[1:]) == 0, capsys.readouterr().err


def test_the_lines_made_what_they_say(namespace):
    one, batch = namespace["action"], namespace["actions"]
    assert one in (0, 1) and batch.shape == (3,)
    assert namespace["probabilities"].sum() == pytest.approx(1.0)
    assert namespace["log_prob"] <= 0.0 and namespace["q_values"].shape == (2,)
    assert namespace["evaluation"].episodes == 20 and Path("exported").is_dir()
    assert namespace["result"].run_dir == Path("runs/f")
    assert namespace["move"] in (0, 1) and np.abs(namespace["state"]["agent_memory"]).max() > 0.0
    assert namespace.get("allowed", 3) == 3  # the only one; not made without the long lines
