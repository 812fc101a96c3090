"""Bad input of the commands: exit status 2 and one line, and nothing left behind."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from kytolly.callback.csv_log import CSVLog
from kytolly.command import entry as cli
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.faults import EnvironmentFault
from kytolly.record.run_folder import RunFolder
from kytolly.trainer import Trainer
from tests.environment.masked import Masked
from tests.environment.predictable import Predictable
from tests.helpers.commands import error_line

TRAIN = ["train", "dqn", "--env", "CartPole-v1"]
PPO = ["train", "ppo", "--env", "CartPole-v1"]


@pytest.mark.parametrize("argv", [["train", "sac"], ["train", "ppo-k"], ["tune", "ppo-k"]])
def test_no_algorithm_is_offered_that_the_command_refuses(argv, capsys):
    line = error_line([*argv, "--env", "CartPole-v1"], capsys)
    offered = line.partition("there are ")[2]
    assert " ppo" in offered and "ppo-kl" not in offered


@pytest.mark.parametrize(
    "argv, words",
    [
        (["train", "dqnn", "--env", "CartPole-v1"], "'dqnn' is no algorithm; there"),
        (["train", "dqn"], "--env is missing"),
        (["train", "dqn", "--env", "CartPole-v9"], "CartPole-v"),
        (["train", "dqn", "--env", "CartPol-v1"], "CartPole"),
        (["train", "dqn", "--env", "MinAtar/Breakot-v1"], "'MinAtar/Breakot-v1'. Nearest"),
        (["train", "pqn", "--env", "breakout-v2"], "MinAtar/Breakout-v1"),
        (
            "train pqn --env MinAtar/Brekout-v0 --env-kwargs sticky_actions=0".split(),
            "'MinAtar/Brekout-v0'. Nearest",
        ),
        ("train pqn --env MinAtar/Breakout-v0 --loop host".split(), "'MinAtar/Breakout-v0' exists"),
        (
            "train pqn --env MinAtar/Breakout-v0 --env-kwargs sticky_actions=hello".split(),
            "sticky_actions of a MinAtar",
        ),
        ([*TRAIN, "--learning-rat", "0.1"], "'--learning-rate'"),
        ([*TRAIN, "--learning-rate", "fast"], "learning_rate is 'fast',"),
        ([*TRAIN, "--learning-rate", "-1"], "learning_rate is -1, expected"),
        ([*TRAIN, "--num-envs", "0"], "num_envs is 0, expected a"),
        ([*TRAIN, "--warmup-env-steps", "10"], "warmup_env_steps (10) is below"),
        ([*TRAIN, "--device", "gpu:7"], "device is 'gpu:7', and"),
        ([*TRAIN, "--replay-capacity", "1000000000000"], "at most 2,147,483,647 rows"),
        ([*TRAIN, "--config", "missing.yaml"], "missing.yaml cannot be read"),
        ([*TRAIN, "--resume", "nowhere"], "nowhere is no run"),
        (
            ["train", "dqn", "--env", "LunarLander-v3", "--loop", "device"],
            "not exist as tensor code",
        ),
        (["train", "dqn", "--env", "Pendulum-v1"], "the actions of Pendulum-v1 are"),
        (
            [*PPO, *"--num-envs 3 --rollout-steps 10 --num-minibatches 4".split()],
            "num_minibatches (4) does not",
        ),
        (
            [*PPO, *"--num-minibatches 4 --gradient-accumulation 3".split()],
            "gradient_accumulation (3) does",
        ),
        (
            [*PPO, *"--num-envs 1 --rollout-steps 8 --num-minibatches 8".split()],
            "num_minibatches (8) leaves 1",
        ),
        ([*PPO, "--num-envs", "0"], "num_envs is 0, expected a"),
        ([*PPO, "--action-bounds", "squish"], "Did you mean 'squash'?"),
        ([*PPO, "--rollout-step", "5"], "'--rollout-steps'"),
        ([*PPO, "--replay-capacity", "5"], "--replay-capacity is not an"),
        ([*TRAIN, "--clip-range", "0.1"], "--clip-range is not an option"),
        (["train", "dqn", "--env", "Cartpole-v1", "--tuned"], "Did you mean 'CartPole-v1'?"),
        (["train", "ddqn", "--env", "Pendulum-v1", "--tuned"], "no tuned settings of ddqn for"),
        ([*TRAIN, "--resume", "a", "--tuned"], "Leave --tuned out, and give"),
        ([*TRAIN, "--hidden-units", "64", "32"], "'32' is one argument too many, expected"),
        (["evaluate", "nowhere"], "nowhere is no run"),
        (["evaluate", "nowhere", "--episodes", "0"], "expected a whole number above"),
        (["fly"], "invalid choice: 'fly'"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_status_2(argv, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in error_line(argv, capsys)
    assert not list(tmp_path.iterdir())  # nothing half made is left behind


def test_a_game_without_its_package_is_told_with_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as where it is not installed
    monkeypatch.delitem(gymnasium.registry, "ALE/Pong-v5", raising=False)
    line = error_line(["train", "dqn", "--env", "ALE/Pong-v5"], capsys)
    assert "comes from the module ale_py, which cannot be imported" in line
    assert line.endswith('Install it: pip install "kytolly[atari]".')


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "holds nothing"),
        (b"\x00\xff\xfe binary", "is not YAML text"),
        (b"learning_rat: 1", "Did you mean 'learning_rate'?"),
        (b"learning_rate: [1]", "learning_rate is [1], expected"),
    ],
)
def test_a_bad_configuration_file_is_named(content, words, capsys, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    assert words in error_line([*TRAIN, "--config", path], capsys)


class Shown(Predictable):
    """Observes, and takes, what the spaces given say; observations come from their samples."""

    def __init__(self, observation_space=None, action_space=None, obs=None):
        super().__init__()
        self.observation_space = observation_space or Predictable.observation_space
        self.action_space = action_space or Predictable.action_space
        self.obs = obs

    def observed(self):
        return self.observation_space.sample() if self.obs is None else self.obs


PLACE = spaces.Box(-1, 1, (2,), np.float32)
HALF_OPEN = spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32))
SQUASHING = {"action_bounds": "squash"}


def masked(size, **settings):
    space = spaces.Dict(place=PLACE, action_mask=spaces.MultiBinary(size))
    return lambda: Shown(space, **settings)


@pytest.mark.parametrize(
    "make, settings, words",
    [
        (lambda: Shown(action_space=HALF_OPEN), SQUASHING, "action_bounds is 'squash', and"),
        (lambda: Shown(obs=np.full(3, np.nan, np.float32)), {}, "with NaN or infinite numbers"),
        (lambda: Shown(spaces.Dict(a=PLACE, b=spaces.Text(5))), {}, "a Text space; supported are"),
        (masked(3), {}, "has an action mask of shape"),
        (lambda: Masked("info", wrong=np.ones(5, np.int8)), {}, "has an action mask of shape"),
        (
            lambda: Masked("method", length=9, wrong=np.zeros(4, np.int8)),
            {},
            "an action mask that forbids",
        ),
        (masked(2, action_space=PLACE), {}, "of which a mask cannot forbid"),
        (lambda: Shown(action_space=spaces.Text(3)), {}, "Text"),
    ],
    ids="infinite-bounds nan text-in-dict mask-size mask-shape mask-nothing mask-box text".split(),
)
def test_ppo_refuses_an_environment_that_it_cannot_use(make, settings, words, tmp_path):
    cfg = PPOConfig(**{"num_envs": 2, "total_env_steps": 512, "xla": False, **settings})
    with pytest.raises((ValueError, EnvironmentFault)) as error:
        Trainer(tmp_path / "r", progress=False).train_ppo(cfg, make)
    assert words in str(error.value)


def test_infinite_bounds_are_no_obstacle_to_clipping(tmp_path):
    cfg = PPOConfig(
        num_envs=2,
        rollout_steps=16,
        total_env_steps=32,
        xla=False,
        evaluation_episodes=2,
        final_evaluation_episodes=2,
    )
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    class Unbounded(Shown):
        def step(self, action):
            return super().step(float(np.sum(action)))

    result = Trainer(tmp_path / "r", progress=False).train_ppo(cfg, lambda: Unbounded(None, box))
    assert result.summary["env_steps"] == 32


def test_dqn_names_ppo_for_what_it_cannot_use(tmp_path):
    with pytest.raises(ValueError, match=r"the actions of Shown are a .* Train it with ppo"):
        Trainer(tmp_path / "r", progress=False).train_dqn(
            DQNConfig(), lambda: Shown(action_space=spaces.MultiDiscrete([2, 3]))
        )
    assert not (tmp_path / "r").exists()


def test_a_log_folder_that_exists_is_refused_and_left_alone(capsys, tmp_path):
    (tmp_path / "result.json").write_text("precious")
    assert "exists and is not empty" in error_line([*TRAIN, "--log-dir", tmp_path], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert (tmp_path / "result.json").read_text() == "precious"


def test_a_log_folder_that_cannot_be_written_is_refused(capsys, tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert "cannot be written" in error_line([*TRAIN, "--log-dir", file / "run"], capsys)


def test_another_keras_backend_is_refused(tmp_path):
    import os
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "kytolly.command.entry", *TRAIN, "--log-dir", tmp_path / "r"],
        cwd=Path(cli.__file__).parents[2],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "KERAS_BACKEND" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_python_that_is_too_old_is_refused(monkeypatch, capsys):
    import runpy
    import sys

    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(cli.__file__)
    assert stop.value.code == 2
    assert "Python 3.9 was found, 3.11 to 3.14 is expected" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["evaluate"], ["train", "dqn", "--resume"]])
def test_a_run_folder_does_not_make_us_import_a_module(argv, capsys, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('imported', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    with RunFolder.create(run, "x") as folder:
        folder.write_config(DQNConfig(), "evil:Env-v0", "host")
    assert "would import the Python module evil" in error_line([*argv, run], capsys)
    assert not (tmp_path / "imported").exists()


def test_files_that_were_not_written_are_one_line_and_status_1(capsys, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CSVLog, "on_log", refuse)
    short = "--total-env-steps 60 --warmup-env-steps 16 --batch-size 8 --no-xla".split()
    short += "--evaluation-episodes 1 --final-evaluation-episodes 1 --hidden-units 4".split()
    monkeypatch.setenv("KYTOLLY_XLA", "off")
    monkeypatch.setattr("warnings.showwarning", lambda *_, **__: None)
    assert cli.main([*TRAIN, *short, "--log-dir", str(tmp_path / "run"), "--json"]) == 1
    captured = capsys.readouterr()
    assert "metrics.csv (No space left on device)" in captured.err.splitlines()[-1]
    assert '"stopped_by": "total_env_steps"' in captured.out


@pytest.mark.parametrize(
    "argv, words",
    [
        ([*TRAIN, "--seed", "1", "--seed=2"], "--seed is given 2 times. Give"),
        ([*TRAIN, "--xla", "--no-xla"], "--xla is given 2 times"),
        (["train", "dqn", "--resume", "r", "--config", "c"], "Leave --config out"),
        (["train", "dqn", "--resume", "r", "--preset", "safe"], "Leave --preset out"),
        (["train", "ppo-kl", "--env", "CartPole-v1"], "ppo-kl keeps a policy near the"),
        (["train", "ppo-kl", "--help"], "by `kytolly train rewriter"),
        (["train", "--env", "CartPole-v1", "ppo-kl"], "Train in Python, by"),
        (["train", "dqn", "--env", ""], "argument --env: '' was found,"),
        ([*TRAIN[:2], "--env", ".:x"], "x comes from the module '.',"),
        ([*TRAIN[:2], "--env", "x" * 5_000], "unknown environment 'xxx"),
        ([*TRAIN[:2], "--env", "x" * 5_000 + ":y"], "which cannot be imported"),
        ([*TRAIN[:2], "--env", "raises:Env-v0"], "raised RuntimeError when it"),
        ([*TRAIN[:2], "--env", "exits:Env-v0"], "raised SystemExit when it was"),
        ([*TRAIN, "--seed", "1_000"], "seed is '1_000', expected a"),
        ([*TRAIN, *"--async-envs --num-envs 2000".split()], "expected at most 1,024. Lower"),
        ([*PPO, *"--hidden-units 8192,8192,8192 --num-envs 131072".split()], "GiB of"),
        (["check-env", "CartPole-v1", "--seed", "٣"], "'٣' was found, expected a"),
        (["check-env", "CartPole-v1", "--seed=-1"], "'-1' was found, expected a"),
        (["evaluate", "nowhere", "--seed", "9" * 5_000], "expected a whole number of at"),
        (["evaluate", "nowhere", "--episodes", "100001"], "above 0 and at most 100,000"),
        (["evaluate", "a\0b"], "argument RUN: 'a\\x00b' was"),
        (["evaluate", "nowhere", "--env="], "argument --env: '' was found"),
        (["benchmark", "x" * 5_000], "is no table of `kytolly"),
        (["benchmark", "learning", "--figure", "x" * 5_000 + ".png"], "File name too long"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else "",
)
def test_nonsense_that_was_taken_once_is_one_short_line(argv, words, capsys, tmp_path, monkeypatch):
    (tmp_path / "raises.py").write_text("raise RuntimeError('two\\nlines')")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("kytolly.machine.memory.available_bytes", lambda device: 2**30)
    line = error_line(argv, capsys)
    assert words in line and len(line) < 1_100
    assert {path.suffix for path in tmp_path.iterdir()} <= {".py", ""}
