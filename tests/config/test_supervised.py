import dataclasses
import shlex
import types
from pathlib import Path

import pytest

from kytolly.command import entry
from kytolly.config.ppo import PPOConfig
from kytolly.config.ppo_kl import PPOKLConfig
from kytolly.config.supervised import SupervisedConfig
from kytolly.record.resume import what_is_saved


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("batch_size", 0, "at least 1"),
        ("learning_rate", 0.0, "above 0"),
        ("schedule", "linar", "Did you mean 'linear'"),
        ("warmup_ratio", 1.5, "at most 1"),
        ("label_smoothing", -0.1, "at least 0"),
        ("max_grad_norm", 0, "above 0"),
        ("epochs", 0, "passes"),
        ("class_weights", "balanced", "one of auto"),
        ("algorithm", "No Name", "lower-case"),
        ("gradient_accumulation", 0, "at least 1"),
        ("device", "tpu", "auto, cpu, gpu"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(setting, value, expected):
    with pytest.raises(ValueError, match=expected) as error:
        SupervisedConfig(**{setting: value})
    assert setting in str(error.value) and "\n" not in str(error.value)


def test_what_may_be_none_is_none():
    cfg = SupervisedConfig(max_grad_norm=None, total_updates=None, class_weights=None)
    assert cfg.max_grad_norm is None
    assert all(field.metadata["help"] for field in dataclasses.fields(cfg))


@pytest.mark.parametrize("cfg", [SupervisedConfig(), PPOKLConfig()])
def test_where_no_command_trains_none_is_named(cfg):
    said = what_is_saved(types.SimpleNamespace(config=cfg, run_dir=Path("b")))
    assert said.endswith("Begin it with `resume=True`.")


def test_a_command_that_imports_what_the_run_names_is_told_to(tmp_path):
    cfg = PPOConfig(wrappers=["mine:Slower"])
    for config, name in ((PPOConfig(), "mine:Maze-v0"), (cfg, "CartPole-v1")):
        state = types.SimpleNamespace(config=config, run_dir=tmp_path, env_name=name)
        assert what_is_saved(state).endswith(" --trust`.")


def test_a_run_whose_environment_is_no_id_is_continued_in_python(tmp_path):
    state = types.SimpleNamespace(config=PPOConfig(), run_dir=tmp_path, env_name="MyMaze")
    assert what_is_saved(state).endswith("Begin it with `resume=True`.")


def test_an_interrupted_run_names_a_command_that_takes_it(tmp_path):
    said = what_is_saved(
        types.SimpleNamespace(
            config=PPOConfig(), run_dir=tmp_path / "b run", env_name="CartPole-v1"
        )
    )
    program, *words = shlex.split(said.split("`")[1])
    assert program == "kytolly" and entry.parse(words).resume == str(tmp_path / "b run")
