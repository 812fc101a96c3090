"""Noise, priorities and Rainbow, trained as a user trains them."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import kytolly
from kytolly.agent.prioritized_replay import PrioritizedReplay
from kytolly.config.files import read_settings
from kytolly.model.implicit_quantiles import IQNMLP
from kytolly.model.noisy import noisy_layers
from kytolly.trainer import Trainer
from tests.helpers.cases import learning, rest_learning
from tests.helpers.family_runs import SMALL, assert_same_weights, train

BOTH = {"noisy": True, "prioritized": True, "n_step": 3}
RAINBOW = {"num_atoms": 11}


@pytest.mark.parametrize("loop", ["device", learning("host")])
def test_rainbow_is_repeated_and_resumed_bit_for_bit_in_both_loops(loop, tmp_path):
    # An importance exponent that does not depend on the length of the run, for the resumed one.
    fixed = {"total_env_steps": 120, "learning_rate_final": None, "importance_exponent": 1.0}
    fixed |= {"epsilon_start": 0.0, "epsilon_final": 0.0, "noise_scale": 0.5}
    settings = {"num_atoms": 11, "loop": loop, **fixed}
    one = train(tmp_path / "a", "rainbow", **settings)
    assert one.summary["updates"] > 10 and one.summary["loop"] == loop
    with open(tmp_path / "a" / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["epsilon"]) for row in rows] == [0.0] * 2
    assert 0.05 < float(rows[-1]["weight_noise"]) < 0.5
    assert float(rows[-1]["ignored_priorities"]) == 0.0
    train(tmp_path / "b", "rainbow", **settings | {"total_env_steps": 60})
    resumed = train(tmp_path / "b", "rainbow", **settings, resume=True)
    assert_same_weights(one, resumed)
    levels = (result.agent.memory.tree.levels for result in (one, resumed))
    for a, b in zip(*levels, strict=True):
        np.testing.assert_array_equal(a, b)


TWO_STREAMS = {"rainbow": RAINBOW, "iqn": {**BOTH, "network": "dueling"}}


@pytest.mark.learning
@pytest.mark.parametrize(
    "algorithm, loop, precision",
    rest_learning(
        [*itertools.product(TWO_STREAMS, ["device", "host"], ["mixed_float16", "mixed_bfloat16"])],
        [("rainbow", "device", "mixed_float16")],
    ),
)
def test_noise_and_two_streams_learn_in_half_precision(algorithm, loop, precision, tmp_path):
    settings = {"precision": precision, "loop": loop, "n_step": 3, **TWO_STREAMS[algorithm]}
    result = train(tmp_path / "run", algorithm, **settings)
    assert result.summary["updates"] > 10
    assert all(np.isfinite(weight).all() for weight in result.agent.policy.network.get_weights())


@pytest.mark.parametrize(
    "algorithm, loop, more",
    [
        learning(("dqn", "device", {"gradient_accumulation": 2})),
        ("dqn", "host", {"precision": "mixed_bfloat16", "network": "dueling"}),  # without a twin
        learning(("ddqn", "host", {"network": "dueling"})),
        learning(("c51", "device", {"num_atoms": 11, "munchausen": True})),
        learning(("qr-dqn", "host", {"double": True})),
        learning(("iqn", "device", {"network": "dueling", "munchausen": True, "double": True})),
        learning(("iqn", "host", {})),
        learning(("munchausen", "device", {"double": True})),
    ],
)
def test_the_switches_combine_freely(algorithm, loop, more, tmp_path):
    result = train(tmp_path / "a", algorithm, loop=loop, **{**BOTH, **more})
    memory = result.agent.memory
    assert result.summary["updates"] > 20
    assert all(np.isfinite(weight).all() for weight in result.agent.policy.network.get_weights())
    priorities = memory.tree.levels[0].numpy().ravel()
    assert (priorities > 0).sum() == 200 - 4  # all but the newest windows
    assert len(np.unique(priorities)) > 50 and int(memory.ignored) == 0


IMPALA = {"network": "dueling_impala", "impala_width": 1, "impala_pool_size": 2}


@pytest.mark.learning
@pytest.mark.parametrize(
    "env, more",
    [
        ("CartPole-v1", {"xla": False}),
        learning(("CartPole-v1", {})),
        learning(("MinAtar/Breakout-v1", {**IMPALA, "spectral_norm": True, "xla": False})),
    ],
)
def test_the_file_of_beyond_the_rainbow_trains(env, more, tmp_path):
    file = Path(__file__).parents[2] / "configs" / "beyond_the_rainbow.yaml"
    settings = {**SMALL, **read_settings(file)[0], "algorithm": "iqn", **more}
    settings |= {"total_env_steps": 48, "num_quantiles": 2, "num_target_quantiles": 2}
    settings |= {"evaluation_episodes": 1, "final_evaluation_episodes": 1}
    result = Trainer(tmp_path / "a", progress=False).train(settings, env)
    cfg, network = result.agent.cfg, result.agent.policy.network
    assert cfg.munchausen and cfg.noisy and cfg.prioritized and cfg.n_step == 3
    assert result.summary["updates"] > 0 and isinstance(network, IQNMLP) and network.dueling
    assert len(noisy_layers(network)) > 2 and isinstance(result.agent.memory, PrioritizedReplay)
    assert all(np.isfinite(weight).all() for weight in network.get_weights())


@pytest.mark.learning
def test_priorities_alone_and_noise_alone_change_what_is_learned(tmp_path):
    short = {"total_env_steps": 120, "loop": "host"}
    plain = train(tmp_path / "a", "dqn", **short)
    for name in ("noisy", "prioritized"):
        other = train(tmp_path / name, "dqn", **short, **{name: True})
        with pytest.raises(AssertionError):
            assert_same_weights(plain, other)


def test_a_noisy_agent_acts_without_noise_and_is_loaded_and_exported(tmp_path):
    result = train(tmp_path / "a", "rainbow", **RAINBOW)
    agent = kytolly.load(tmp_path / "a")
    obs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    q = agent.q_values(obs)
    np.testing.assert_array_equal(q, agent.q_values(obs))
    scaled = agent.network(obs) / float(agent.network.reward_scale)
    np.testing.assert_allclose(q, scaled, rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(agent.act(obs), q.argmax(axis=1))
    assert Trainer().evaluate(tmp_path / "a", episodes=2).return_mean > 0.0
    # Acting by chance draws noise for each row: actions differ where values are close.
    many = np.repeat(obs[:1], 400, axis=0)
    drawn = agent.act(many, deterministic=False, seed=1)
    np.testing.assert_array_equal(drawn, agent.act(many, deterministic=False, seed=1))
    assert result.agent.exploration.final_state[0] == 0.02 and set(drawn) <= {0, 1}

    from kytolly.deployment.export import export

    report = export(agent, "saved_model", tmp_path / "saved")  # kept only if it agrees
    assert (report.path / "1" / "saved_model.pb").exists()


@pytest.mark.learning
def test_errors_that_are_not_finite_are_said_once(tmp_path):
    from kytolly.policy.dqn import DQNPolicy

    class OneBadError(DQNPolicy):
        def loss(self, batch, weights, hyper):
            loss = super().loss(batch, weights, hyper)
            bad = tf.one_hot(0, loss.td_error.shape[0], on_value=np.nan, off_value=0.0)
            return loss._replace(td_error=loss.td_error + bad)

    trainer = Trainer(tmp_path / "a", progress=False)
    cfg = {**SMALL, "algorithm": "dqn", "prioritized": True}
    with pytest.warns(UserWarning, match="errors of rows that are not finite") as found:
        result = trainer.train(cfg, "CartPole-v1", policy=OneBadError)
    assert sum("not finite" in str(one.message) for one in found) == 1
    assert int(result.agent.memory.ignored) == result.summary["updates"]
    assert np.isfinite(result.agent.memory.tree.levels[0]).all()


@pytest.mark.learning
def test_bounds_that_returns_leave_are_said_of_rainbow_too(tmp_path):
    with pytest.warns(UserWarning, match="lay beyond value_min -1 and value_max 2 after"):
        bounds = {"value_min": -1.0, "value_max": 2.0, "reward_scale": 1.0}
        train(tmp_path / "a", "rainbow", **bounds, total_env_steps=120)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"algorithm": "ppo", "noisy": True}, "'noisy' is not a setting of PPOConfig.* dqn, ddqn"),
        ({"algorithm": "ppo", "prioritized": True}, "'prioritized' is not .* c51, qr-dqn, iqn"),
        ({"algorithm": "dqn", "num_atoms": 5}, r"'num_atoms' .* DQNConfig, but of c51, rainbow\."),
        ({"algorithm": "dqn", "priority_exponent": 2}, "priority_exponent is 2, expected"),
    ],
)
def test_what_does_not_fit_is_refused(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Trainer(tmp_path / "a").train(settings, "CartPole-v1")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "words", [["ppo", "--noisy"], ["dqn", "--num-atoms", "11"], ["ppo", "--prioritized"]]
)
def test_the_command_line_names_the_algorithms_that_have_a_switch(words, capsys):
    from kytolly.command.entry import main

    assert main(["train", *words, "--env", "CartPole-v1", "--json"]) == 2
    error = capsys.readouterr().err
    assert words[1] in error and "rainbow" in error and len(error.strip().splitlines()) == 1


@pytest.mark.learning
def test_rainbow_is_trained_from_the_command_line(tmp_path, capsys):
    from kytolly.command.entry import main

    flags = {**SMALL, **RAINBOW, "num_envs": 3, "log_dir": tmp_path / "run", "total_env_steps": 90}
    words = ["--no-xla", "--json"]
    for name, value in flags.items():
        if name not in ("xla", "hidden_units"):
            words += [f"--{name.replace('_', '-')}", str(value)]
    assert main(["train", "rainbow", "--env", "CartPole-v1", *words]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["algorithm"] == "rainbow" and summary["updates"] > 0
