import copy
import dataclasses
import pickle

import numpy as np
import pytest
import yaml

from kytolly.agent.algorithms import make_config
from kytolly.config.dqn import DQNConfig
from kytolly.config.fields import Default, from_mapping
from kytolly.config.files import read_settings
from kytolly.config.ppo import PPOConfig
from kytolly.config.supervised import SupervisedConfig
from kytolly.config.tuned import TUNED, tuned_line, tuned_settings, without_memory
from kytolly.experiment.members import shared_yaml_text
from kytolly.record.run_folder import yaml_text


@pytest.mark.parametrize(
    "field, value, words",
    [
        ("gamma", 1.2, "gamma is 1.2, expected a number, at least 0 and at most 1. Change it."),
        ("learning_rate", 0, "learning_rate is 0, expected a number, above 0"),
        (
            "learning_rate",
            float("nan"),
            "learning_rate is nan, expected a number, above 0 and",
        ),
        (
            "num_envs",
            0,
            "num_envs is 0, expected a whole number, at least 1 and at most 131,072 env",
        ),
        ("num_envs", 2.5, "num_envs is 2.5, expected a whole number"),
        ("seed", "one", "seed is 'one', expected a whole number"),
        ("xla", 1, "xla is 1, expected true or false"),
        ("algorithm", "dqnn", "Did you mean 'dqn'?"),
        ("hidden_units", [], "hidden_units is [], expected 1 to 16 whole numbers"),
        (
            "hidden_units",
            [64, 0],
            "hidden_units is [64, 0], expected 1 to 16 whole numbers",
        ),
        ("precision", "float16", "mixed_float16"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field, value, words):
    with pytest.raises(ValueError) as error:
        DQNConfig(**{field: value})
    assert words in str(error.value)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"warmup_env_steps": 10}, "warmup_env_steps (10) is below batch_size (128)"),
        ({"replay_capacity": 500}, "replay_capacity (500) is below warmup_env_steps (1000)"),
        ({"epsilon_start": 0.1, "epsilon_final": 0.5}, "exploration only falls"),
        (
            {"epsilon_start": 0.1, "epsilon_middle": 0.5},
            "epsilon_middle (0.5) is above epsilon_start (0.1)",
        ),
        ({"epsilon_middle": 0.01}, "epsilon_final (0.04) is above epsilon_middle (0.01)"),
        ({"num_envs": 9_000, "n_step": 5}, "replay_capacity (50000) is too small"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(settings, words):
    with pytest.raises(ValueError) as error:
        DQNConfig(**settings)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "settings, words",
    [
        (
            {"num_envs": 3, "rollout_steps": 7, "num_minibatches": 4},
            "num_minibatches (4) does not divide the rollout of 21",
        ),
        ({"gradient_accumulation": 3}, "gradient_accumulation (3) does not divide num_minibatches"),
        ({"num_envs": 1, "rollout_steps": 4, "num_minibatches": 4}, "leaves 1 row per update"),
        ({"clip_range": 0}, "clip_range is 0, expected a number, above 0"),
        ({"target_kl": -1}, "target_kl is -1, expected a number, above 0"),
        ({"gae_lambda": 1.1}, "gae_lambda is 1.1, expected a number, at least 0 and at most 1"),
        ({"activation": "tahn"}, "Did you mean 'tanh'?"),
        ({"memory": "gru", "kept_rollouts": 2}, "kept_rollouts is 2 beside a memory, expected 1"),
        (
            {"noise_correlation": 1.0},
            "noise_correlation is 1.0, expected a number, at least 0 and at",
        ),
    ],
)
def test_ppo_refuses_what_does_not_fit(settings, words):
    with pytest.raises(ValueError) as error:
        PPOConfig(**settings)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"memory_length": 8}, "memory_length is set, and memory is none"),
        ({"memory_inputs": True, "memory_span": 9}, "memory_span and memory_inputs are set"),
        ({"algorithm": "ppo", "memory_refresh": True}, "memory_refresh is set"),
        ({"memory_burn_in": 4}, "memory_burn_in is set"),
        ({"memory": "gru", "memory_burn_in": 2000, "total_env_steps": 500}, "memory_burn_in 2000"),
        ({"memory": "gru", "memory_burn_in": 5000, "replay_capacity": 2000}, "memory_burn_in 5000"),
        ({"algorithm": "c51", "memory": "gru"}, "'gru', and c51 learns distributions, which"),
        ({"memory": "gru", "noisy": True}, "'gru', and noisy is set, which"),
        ({"memory": "gru", "network": "table"}, "'gru', and network is 'table', which"),
    ],
)
def test_settings_of_a_memory_are_refused_by_name(settings, words):
    with pytest.raises(ValueError) as error:
        make_config({"algorithm": "dqn", **settings})
    assert words in str(error.value)


def test_the_word_none_is_none_where_a_setting_may_be_that():
    cfg = PPOConfig(memory="none", target_kl="none", learning_rate_final="none")
    assert (cfg.memory, cfg.target_kl, cfg.learning_rate_final) == (None, None, None)
    with pytest.raises(ValueError, match="gamma is 'none', expected a number"):
        PPOConfig(gamma="none")
    with pytest.raises(ValueError, match="target_kl is array"):
        PPOConfig(target_kl=np.zeros(2))


@pytest.mark.parametrize("none", [None, "none"])
def test_a_task_that_is_tuned_with_a_memory_is_trained_without_one_too(none):
    tuned = tuned_settings("ppo", "PendulumNoVel-v1")
    assert tuned["memory_length"]
    cfg = make_config(
        {"algorithm": "ppo", **without_memory(tuned, {"memory": none}), "memory": none}
    )
    assert cfg.memory is None and cfg.gamma == tuned["gamma"]
    assert without_memory(tuned, {"memory": "lstm"}) == without_memory(tuned, {}) == tuned


def test_rows_and_updates_of_ppo():
    cfg = PPOConfig(num_envs=6, rollout_steps=8, num_minibatches=12, gradient_accumulation=3)
    # 48 rows in 12 parts of 4; three of them, 12 rows, make one of 4 updates a pass
    assert (cfg.env_steps_per_iteration, cfg.rows_per_update, cfg.updates_per_epoch) == (48, 12, 4)
    one = PPOConfig(num_envs=1, rollout_steps=4, num_minibatches=4, normalize_advantage=False)
    assert one.rows_per_update == 1
    assert (cfg.rollout_steps, cfg.updates_per_iteration) == (8, 10 * 4)


def test_what_nobody_gave_fits_what_is_given():
    default = PPOConfig(rollout_steps=70)
    assert (default.num_envs, default.num_minibatches) == (8, 8)
    fitted = dataclasses.replace(dataclasses.replace(default, seed=3), num_envs=3)
    assert (fitted.num_minibatches, fitted.rows_per_update) == (3, 70)
    with pytest.raises(ValueError, match="num_minibatches"):
        dataclasses.replace(PPOConfig(rollout_steps=7, num_minibatches=4), num_envs=3)


def test_a_config_knows_which_number_was_given():
    is_default = [isinstance(cfg.num_envs, Default) for cfg in (PPOConfig(), PPOConfig(num_envs=8))]
    assert is_default == [True, False]
    assert isinstance(dataclasses.replace(PPOConfig(), seed=3).num_envs, Default)
    epsilons = [DQNConfig(**given).epsilon_final for given in ({}, {"epsilon_final": 0.04})]
    assert [isinstance(epsilon, Default) for epsilon in epsilons] == [True, False]


@pytest.mark.parametrize(
    "given, expected",
    [
        ({}, (4, 0.02)),
        ({"target_sync_updates": 100}, (100, 1.0)),  # copies, as whoever counts updates expects
        ({"target_sync_updates": 9}, (9, 0.02)),
        ({"layer_norm": True}, (4, 0.04)),
        ({"layer_norm": True, "target_sync_updates": 10}, (10, 1.0)),
        ({"layer_norm": True, "target_mix": 0.02}, (4, 0.02)),
        ({"target_mix": 1.0}, (200, 1.0)),
        ({"target_mix": 0.005}, (4, 0.005)),
        ({"target_sync_updates": 1, "target_mix": 0.005}, (1, 0.005)),
    ],
)
def test_the_target_network_is_an_average_unless_copies_are_asked_for(given, expected):
    cfg = dataclasses.replace(DQNConfig(**given), seed=3)
    assert (cfg.target_sync_updates, cfg.mix) == expected
    later = dataclasses.replace(DQNConfig(), **given)
    assert (later.target_sync_updates, later.mix) == expected


@pytest.mark.parametrize(
    "given, expected",
    [
        ({}, (128, 16)),
        ({"num_envs": 1}, (1_024, 16)),
        ({"num_envs": 4, "rollout_steps": 32}, (32, 2)),  # minibatches of 64 rows
        ({"num_envs": 2, "rollout_steps": 4}, (4, 1)),
        ({"rollout_steps": 100}, (100, 10)),  # 12 do not divide 800 rows, nor do 11
    ],
)
def test_rollout_and_minibatches_of_ppo_follow_the_number_of_environments(given, expected):
    cfg = dataclasses.replace(PPOConfig(**given), seed=3)
    assert (cfg.rollout_steps, cfg.num_minibatches) == expected
    assert yaml.safe_load(yaml_text(PPOConfig(), {}))["settings"]["num_envs"] == 8


@pytest.mark.parametrize("algorithm", TUNED)
def test_tuned_settings_are_settings(algorithm):
    for name in TUNED[algorithm]:
        cfg = make_config({"algorithm": algorithm, **tuned_settings(algorithm, name)})
        assert cfg.total_env_steps > 0


def test_an_unknown_field_is_an_error_with_the_nearest_name():
    with pytest.raises(ValueError, match="Did you mean 'learning_rate'"):
        from_mapping(DQNConfig, {"learning_rat": 0.1})


def test_numbers_of_numpy_are_numbers():
    cfg = DQNConfig(num_envs=np.int64(3), learning_rate=np.float32(0.25), gamma=np.float64(1))
    assert (cfg.num_envs, cfg.learning_rate, cfg.gamma) == (3, 0.25, 1.0)
    assert [type(n) for n in (cfg.num_envs, cfg.learning_rate, cfg.gamma)] == [int, float, float]


@pytest.mark.parametrize("kind", [DQNConfig, PPOConfig])
def test_a_config_is_frozen_and_a_changed_one_is_checked(kind):
    cfg = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.seed = 1
    assert not hasattr(cfg, "__dict__") and dataclasses.replace(cfg, seed=4.0).seed == 4
    with pytest.raises(ValueError, match="seed is -1, expected a whole number, at least 0"):
        dataclasses.replace(cfg, seed=-1)


def test_whole_floats_and_lists_become_what_the_field_says():
    cfg = DQNConfig(total_env_steps=1e5, hidden_units=[64, 64], learning_rate=1)
    assert cfg.total_env_steps == 100_000 and isinstance(cfg.total_env_steps, int)
    assert cfg.hidden_units == (64, 64) and isinstance(cfg.learning_rate, float)


@pytest.mark.parametrize(
    "num_envs, rollout_steps, updates",
    [(1, 10, 2), (5, 2, 2), (8, 1, 2), (4096, 1, 820)],
)
def test_updates_per_env_step_stay_as_configured_for_any_number_of_environments(
    num_envs, rollout_steps, updates
):
    cfg = DQNConfig(
        num_envs=num_envs,
        train_interval_env_steps=10,
        updates_per_interval=2,
        replay_capacity=100_000,
    )
    # 4096 env steps an iteration at 2 updates per 10: 819.2, so one iteration in five makes 820
    assert (cfg.rollout_steps, cfg.updates_per_iteration) == (rollout_steps, updates)


@pytest.mark.parametrize("kind", [DQNConfig, PPOConfig])
def test_yaml_out_and_in_is_the_same_configuration(kind, tmp_path):
    cfg = kind(hidden_units=(7, 8), reward_threshold=3.5, seed=4, learning_rate_final=1e-5)
    (tmp_path / "c.yaml").write_text(yaml_text(cfg, {"environment": "X-v0"}))
    settings, beside = read_settings(tmp_path / "c.yaml")
    assert from_mapping(kind, settings) == cfg and beside == {"environment": "X-v0"}
    assert set(yaml.safe_load((tmp_path / "c.yaml").read_text())["settings"]) == {
        field.name for field in dataclasses.fields(kind)
    }


def test_a_shared_file_leaves_to_each_run_what_nobody_gave(tmp_path):
    file = tmp_path / "group.yaml"
    for cfg in (DQNConfig(n_step=5), PPOConfig(gae_lambda_value=0.99, num_envs=2)):
        file.write_text(shared_yaml_text(cfg, {"environment": "X-v0"}))
        settings, beside = read_settings(file)
        assert beside == {"environment": "X-v0"}
        read = from_mapping(type(cfg), settings)
        for name, value in dataclasses.asdict(cfg).items():
            assert (name, getattr(read, name)) == (name, value)
            assert isinstance(getattr(read, name), Default) is isinstance(value, Default), name


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "holds nothing"),
        (b"\x80\x81\xff", "is not YAML text"),
        (b"a: [1", "is not YAML text"),
        (b"- 1\n- 2\n", "holds list"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path, content, words):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        read_settings(path)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "kind, name, meant",
    [
        (PPOConfig, "n_steps", "rollout_steps"),
        (DQNConfig, "buffer_size", "replay_capacity"),
        (SupervisedConfig, "learning_rat", "learning_rate"),
    ],
)
def test_python_gives_the_hint_that_files_and_flags_have(kind, name, meant):
    for error in (TypeError, ValueError):  # as Python has it, and as a mapping has it
        with pytest.raises(error, match=meant):
            kind(**{name: 128})
    assert dataclasses.replace(kind(), seed=3).seed == copy.copy(kind(seed=3)).seed == 3
    assert pickle.loads(pickle.dumps(kind(seed=3))) == kind(seed=3)


@pytest.mark.parametrize(
    "settings, heeds", [({"algorithm": "dqn", "n_step": 1}, False), ({"algorithm": "pqn"}, False)]
)
def test_runs_that_learned_values_before_there_were_masks_look_for_none(settings, heeds, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"settings": settings, "environment": "Taxi-v4"}))
    assert read_settings(file)[0]["action_masks"] is heeds
    file.write_text(yaml.safe_dump({"settings": {"algorithm": "ppo"}, "environment": "Taxi-v4"}))
    assert "action_masks" not in read_settings(file)[0]
    file.write_text(yaml.safe_dump({"settings": {**settings, "action_masks": True}}))
    assert read_settings(file)[0]["action_masks"] is True


@pytest.mark.parametrize(
    "algorithm, expected",
    [
        ("dqn", (False, 0.0)),
        ("munchausen", (False, 0.0)),
        ("ppo", (None, 0.0)),
        ("pqn", (None, None)),
    ],
)
def test_runs_from_before_there_were_norms_and_averages_have_none(algorithm, expected, tmp_path):
    settings = {"algorithm": algorithm, "cut_at_exploration": True}
    settings |= {} if algorithm in ("ppo", "pqn") else {"n_step": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"settings": settings}))
    found = read_settings(tmp_path / "config.yaml")[0]
    assert (found.get("layer_norm"), found.get("average_share")) == expected
    assert found.get("gae_lambda_value", "absent") == (None if algorithm == "ppo" else "absent")


def test_noisy_runs_from_before_there_was_epsilon_beside_have_none(tmp_path):
    file, settings = tmp_path / "config.yaml", {"algorithm": "rainbow", "n_step": 3, "noisy": True}
    settings |= {"epsilon_start": 1.0, "epsilon_final": 0.04, "exploration_repeat": 1}
    file.write_text(yaml.safe_dump({"settings": settings}))
    found = read_settings(file)[0]
    assert (found["epsilon_start"], found["epsilon_final"]) == (0.0, 0.0)
    assert found["cut_at_exploration"] is False and "exploration_repeat" not in found
    file.write_text(yaml.safe_dump({"settings": {**settings, "average_share": 0.1}}))
    assert read_settings(file)[0]["epsilon_final"] == 0.04


def test_a_run_far_shorter_than_its_settings_are_tuned_for_is_told():
    row = tuned_settings("ppo", "CartPole-v1")
    line = tuned_line(PPOConfig(**row | {"total_env_steps": 20_000}), "CartPole-v1")
    assert line.endswith("They are for 100,000 env steps: in 20,000, the defaults may learn more.")
    assert tuned_line(PPOConfig(**row), "CartPole-v1").endswith("--no-tuned leaves them out.")
