"""Whatever is given, the answer is one line: ValueError in Python, exit status 2 of a command."""

import math
import os

import pytest

from kytolly.agent.algorithms import make_config
from kytolly.command import entry
from kytolly.config import words as words_module
from kytolly.config.dqn import DQNConfig
from kytolly.config.files import MAX_BYTES, read_settings
from kytolly.config.ppo import PPOConfig
from kytolly.config.words import nearest_divisors
from kytolly.record.run_folder import RunFolder
from kytolly.record.saved_run import SavedRun

TRAIN = ["train", "dqn", "--env", "CartPole-v1"]
LONG = "x" * 5_000


def message_of(call, *arguments, most=600):
    """The message of the ValueError that a call must raise."""
    with pytest.raises(ValueError) as error:
        call(*arguments)
    message = str(error.value)
    assert "\n" not in message and len(message) < most
    return message


def bill(laughs):
    lines = ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for one, other in zip("abcdefg"[:laughs], "bcdefgh", strict=False):
        lines.append(f"{other}: &{other} [{', '.join([f'*{one}'] * 9)}]")
    return "\n".join(lines)


class Strange:
    def __repr__(self):
        return "two\nlines"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"seed": 10**400}, "seed is 100000"),
        ({"seed": 10**5_000}, "seed is a number of thousands"),
        ({"seed": -(2**63) - 1}, "expected a whole number, at"),
        ({"total_env_steps": 10**400}, "at most 100,000,000,000 env"),
        ({"learning_rate": 10**400}, "expected a number, above 0 and"),
        ({"learning_rate": 1e300}, "learning_rate is 1e+300,"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"reward_threshold": math.inf}, "reward_threshold is inf,"),
        ({"reward_threshold": -math.inf}, "reward_threshold is -inf"),
        ({"gamma": math.nan}, "gamma is nan"),
        ({"gamma": True}, "gamma is True, expected a"),
        ({"num_envs": True}, "num_envs is True, expected a"),
        ({"xla": 1}, "xla is 1, expected true or"),
        ({"xla": None}, "xla is None, expected true or"),
        ({"num_envs": math.inf}, "num_envs is inf, expected a"),
        ({"num_envs": "٣"}, "num_envs is '٣', expected a"),
        ({"num_envs": Strange()}, "num_envs is two lines,"),
        ({"num_envs": 10**9}, "at most 131,072 environments"),
        ({"evaluation_episodes": 10**9}, "at most 100,000 episodes"),
        ({"hidden_units": [64] * 10**6}, "hidden_units is [64, 64,"),
        ({"hidden_units": (10**9,)}, "expected 1 to 16 whole numbers"),
        ({"hidden_units": ()}, "hidden_units is (), expected 1"),
        ({"hidden_units": 64}, "hidden_units is 64, expected 1"),
        ({"hidden_units": [[64]]}, "hidden_units is [[64]],"),
        ({"hidden_units": LONG}, "hidden_units is 'xxx"),
        ({"replay_capacity": 2**31}, "at most 2,147,483,647 rows"),
        ({"n_step": 10**6}, "n_step is 1000000, expected a"),
        ({"loop": LONG}, "expected one of auto, device,"),
        ({"loop": ["host"]}, "loop is ['host'], expected one"),
        ({"loop": None}, "loop is None, expected one of"),
        ({"device": "gpu:²"}, "device is 'gpu:²', expected"),
        ({"device": "gpu:٣"}, "expected auto, cpu, gpu or"),
        ({"device": "gpu\n"}, "expected auto, cpu, gpu or"),
        ({"device": "gpu:" + "9" * 5_000}, "expected auto, cpu, gpu or"),
        ({LONG: 1}, "is not a setting of DQNConfig"),
        ({"learning\nrate": 1}, "'learning\\nrate' is not a"),
        ({1: 1}, "1 is not a setting of"),
        ({"batch_size": 1_000, "updates_per_interval": 10**6}, "an iteration draws 1000000"),
        ({"algorithm": "ppo", "rollout_steps": 10**18}, "rollout_steps is"),
        (
            {"algorithm": "ppo", "rollout_steps": 10**6, "num_envs": 10**5},
            "a rollout has 100,000,000,000",
        ),
        ({"algorithm": "ppo", "rollout_steps": 2**26 - 5, "num_envs": 1}, "rollout_steps is"),
        ({"algorithm": "ppo", "epochs": 10**9}, "epochs is 1000000000, expected"),
        ({"algorithm": "ppo", "num_minibatches": 10**18}, "num_minibatches is"),
        ({"algorithm": "ppo", "log_std_init": 2.1}, "log_std_init is 2.1, expected"),
        ({"algorithm": "ppo", "log_std_init": -21}, "log_std_init is -21"),
    ],
    ids=lambda value: next(reversed(list(map(str, value))))[:30] if isinstance(value, dict) else "",
)
def test_a_bad_setting_is_refused_in_one_line(settings, words):
    assert words in message_of(make_config, {"algorithm": "dqn", **settings})


def test_the_nearest_divisors_of_the_largest_rollout_are_found_with_few_divisions(monkeypatch):
    rows, tried = 2**26 - 5, []  # prime

    def counting_range(*bounds):
        tried.append(range(*bounds))
        return tried[-1]

    monkeypatch.setattr(words_module, "range", counting_range, raising=False)
    assert nearest_divisors(rows, 4) == f"1 or {rows}"
    assert sum(map(len, tried)) <= 8_192  # the square root, instead of all the numbers below
    assert nearest_divisors(36, 5) == "4 or 6" and nearest_divisors(36, 36) == "18"


def test_the_limits_are_allowed():
    assert PPOConfig(log_std_init=2).log_std_init == 2
    assert DQNConfig(device="gpu:12", hidden_units=[8_192] * 16, seed=2**31 - 1).device == "gpu:12"


@pytest.mark.parametrize(
    "text, words",
    [
        ("settings: null", "is None, expected settings"),
        ("settings: 3", "is 3, expected settings below"),
        ("settings: {seed: 1}\nsed: 1", "'sed' is beside settings"),
        ("settings: {seed: 1}\nverions: 1", "Did you mean 'versions'?"),
        ("seed: 1\nseed: 2", "'seed' is given 2 times"),
        ("settings: {seed: 1, gamma: 1, seed: 2}", "'seed' is given 2 times"),
        (bill(1), "anchors, aliases and tags are"),
        (bill(7), "anchors, aliases and tags are"),
        ("a: &a [*a]", "anchors, aliases and tags are"),
        ("seed: !!python/object:os.system {}", "anchors, aliases and tags are"),
        ("seed: !!int ''", "anchors, aliases and tags are"),
        ("a: " + "[" * 10_000, "nested more than 16 deep"),
        ("a: " + "[" * 20 + "]" * 20, "nested more than 16 deep"),
        ("\n".join(" " * n + "a:" for n in range(200)), "nested more than 16 deep"),
        ("a: " + "x" * MAX_BYTES, "more than 65,536 bytes"),
        ("seed: 2020-13-45", "is not YAML text"),
        ("seed: " + "9" * 5_000, "is not YAML text"),
        ("seed: 0x_", "is not YAML text"),
        ("{[1]: 2}", "is not YAML text"),
        ("<<: 3", "is not YAML text"),
        ("a\0b: 1", "is not YAML text"),
        ("- 1", "holds list"),
        ("---\na: 1\n---\nb: 2", "is not YAML text"),
    ],
    ids=lambda text: text[:20],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, text, words):
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    assert words in message_of(read_settings, tmp_path / "c.yaml", most=1_200)


@pytest.mark.parametrize("path", [LONG, "a\0b", ".", "/dev/zero", "no\nfile"])
def test_a_bad_path_of_a_file_is_refused_in_one_line(path):
    message_of(read_settings, path, most=1_200)


@pytest.mark.parametrize("path", [LONG, "a\0b", "/dev/null/run", "/dev/null"])
def test_a_bad_path_of_a_run_is_refused_in_one_line(path):
    assert "is no run" in message_of(SavedRun.existing, path)
    message_of(RunFolder.create, path, "dqn")


@pytest.mark.parametrize("beside", ["versions: [1]", "versions: 3", "loop: host", "versions: {}"])
def test_a_run_whose_versions_are_damaged_is_refused(tmp_path, beside):
    text = f"settings: {{algorithm: dqn}}\nenvironment: X\n{beside}"
    (tmp_path / "config.yaml").write_text(text)
    message = message_of(SavedRun.resumable, tmp_path)
    assert "expected 0.2 or newer" in message or "$.versions" in message


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--seed", "9" * 400], "expected a whole number"),
        (["--seed", "9" * 5_000], "expected a whole number"),
        (["--num-envs", "٣"], "num_envs is '٣', expected a"),
        (["--num-envs", ""], "num_envs is '', expected a"),
        (["--gamma", "nan"], "gamma is nan, expected a"),
        (["--learning-rate", "1e400"], "learning_rate is inf, expected"),
        (["--hidden-units", ",".join(["64"] * 10_000)], "expected 1 to 16 whole numbers"),
        (["--hidden-units", ","], "expected 1 to 16 whole numbers"),
        (["--device", "gpu:²"], "device is 'gpu:²', expected"),
        (["--log-dir="], "argument --log-dir: '' was"),
        (["--log-dir", " "], "argument --log-dir: ' ' was"),
        (["--log-dir", "a\0b"], "argument --log-dir: 'a\\x00b'"),
        (["--resume="], "argument --resume: '' was"),
        (["--config="], "argument --config: '' was"),
        (["--config", LONG], "cannot be read (File name too"),
        (["--resume", LONG], "is no run (it does not exist)"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_bad_flag_is_one_line_and_exit_status_2(flags, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert entry.main([*TRAIN, *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and words in captured.err and captured.err.count("\n") == 1
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("given", ["²", "0", "-1", "1e3", "٣", "9" * 5_000, ""])
def test_a_bad_number_of_episodes_is_one_line(given, capsys):
    assert entry.main(["evaluate", "nowhere", f"--episodes={given}"]) == 2
    assert "expected a whole number above 0 and at most" in capsys.readouterr().err


@pytest.mark.parametrize("found", ["ppo", "[1]", "ddqn", "null"])
def test_a_file_for_another_algorithm_is_refused(found, capsys, tmp_path):
    (tmp_path / "c.yaml").write_text(f"algorithm: {found}\nseed: 1")
    assert entry.main([*TRAIN, "--config", str(tmp_path / "c.yaml")]) == 2
    assert "ALGO is dqn, and" in capsys.readouterr().err


def test_a_run_without_an_update_is_refused_with_the_numbers():
    words = message_of(make_config, {"algorithm": "dqn", "total_env_steps": 900})
    assert "(900) ends before the first update, which needs 1,000 env steps" in words
    make_config({"algorithm": "dqn", "total_env_steps": 993})  # 32 iterations of 32: 1,024
