"""C51, QR-DQN, IQN and Munchausen-DQN, trained as a user trains them."""

import csv
import warnings

import keras
import numpy as np
import pytest

import kytolly
from kytolly.model.distributional_mlp import AtomMLP, QuantileMLP
from kytolly.trainer import Trainer
from tests.helpers.cases import rest_learning
from tests.helpers.family_runs import SMALL, assert_same_weights, train

SWITCHES = {"double": True, "network": "dueling", "n_step": 3, "munchausen": True}
FAMILY = ["c51", "qr-dqn", "iqn", "munchausen"]


@pytest.mark.learning
@pytest.mark.parametrize("loop", ["device", "host"])
@pytest.mark.parametrize("algorithm", FAMILY)
def test_a_run_is_repeated_and_resumed_bit_for_bit_in_both_loops(algorithm, loop, tmp_path):
    # Without XLA, Eigen adds up the larger products of IQN in the order in which threads end.
    settings = {**SWITCHES, "xla": algorithm == "iqn", "loop": loop, "learning_rate_final": None}
    whole = train(tmp_path / "a", algorithm, **settings)
    assert whole.summary["updates"] > 20 and whole.summary["loop"] == loop
    train(tmp_path / "b", algorithm, **settings | {"total_env_steps": 120})
    assert_same_weights(whole, train(tmp_path / "b", algorithm, **settings, resume=True))


@pytest.mark.parametrize("algorithm", rest_learning(FAMILY, ["iqn"]))
def test_a_loaded_agent_acts_by_means(algorithm, tmp_path):
    result = train(tmp_path / "a", algorithm)
    agent = kytolly.load(tmp_path / "a")
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    q = agent.q_values(obs)
    assert q.shape == (5, 2)
    scaled = agent.network(obs) / agent.network.reward_scale
    np.testing.assert_allclose(q, scaled, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(agent.act(obs), q.argmax(axis=1))
    np.testing.assert_allclose(agent.values(obs), q.max(axis=1))
    assert Trainer().evaluate(tmp_path / "a", episodes=2).return_mean > 0.0
    with pytest.raises(ValueError, match="no distribution over actions"):
        agent.log_prob(obs, q.argmax(axis=1))
    assert result.agent.q_values(obs).shape == (5, 2)


@pytest.mark.learning
def test_bounds_that_returns_leave_are_said_and_measured(tmp_path):
    with pytest.warns(UserWarning, match="lay beyond value_min -1 and value_max 2 after"):
        train(tmp_path / "a", "c51", value_min=-1.0, value_max=2.0, reward_scale=1.0)
    with open(tmp_path / "a" / "metrics.csv", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert 0.05 < float(last["clipped_targets"]) <= 1.0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "[0-9]+% of the targets")  # not of a slow machine
        train(tmp_path / "b", "c51", value_min=-100.0, value_max=100.0, reward_scale=1.0)


@pytest.mark.learning
def test_weights_in_other_units_are_refused_and_values_are_in_those_of_rewards(tmp_path):
    result = train(tmp_path / "a", "c51", reward_scale=0.5)
    obs = np.ones((3, 4), np.float32)
    outputs = result.agent.policy.network(obs)
    for agent in (result.agent, kytolly.load(tmp_path / "a")):
        np.testing.assert_allclose(agent.values(obs), agent.q_values(obs).max(axis=-1))
    np.testing.assert_allclose(result.agent.q_values(obs), outputs / 0.5, rtol=1e-5)
    for other in ({"reward_scale": 1.0}, {"reward_scale": 0.5, "value_max": 50.0}):
        with pytest.raises(ValueError, match=r"Leave (reward_scale|value_max) out to continue"):
            train(tmp_path / "a", "c51", resume=True, **other)
        with pytest.raises(ValueError, match=r"init is .*, which learned with (reward|value)_"):
            cfg = {**SMALL, "algorithm": "c51", **other}
            Trainer(tmp_path / "b").train(cfg, "CartPole-v1", init=tmp_path / "a")
    more = train(tmp_path / "a", "c51", resume=True, reward_scale=0.5, total_env_steps=300)
    assert more.summary["env_steps"] == 300


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"algorithm": "dqn", "num_atoms": 5}, "'num_atoms' is not a setting of DQNConfig"),
        ({"algorithm": "c51", "num_quantiles": 5}, "'num_quantiles' is not a setting of C51Conf"),
        ({"algorithm": "dqn", "munchausen": True}, "'munchausen' is not a setting of DQNConfig"),
        ({"algorithm": "c51", "value_min": 5, "value_max": 5.0}, "value_min is 5 and value_max 5"),
        (
            {"algorithm": "c51", "value_min": 1e8, "value_max": 1e8 + 1.0},
            "expected atoms that float32 can tell apart",
        ),
        ({"algorithm": "c51", "num_atoms": 1}, "num_atoms is 1, expected a whole number, at least"),
        ({"algorithm": "munchausen", "munchausen_lowest": 1.0}, "munchausen_lowest is 1.0, expe"),
    ],
)
def test_what_does_not_fit_is_refused(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Trainer(tmp_path / "a").train({**SMALL, **settings}, "CartPole-v1")
    assert not (tmp_path / "a").exists()


def test_a_network_without_distributions_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="has no method action_quantiles, expected one, as iqn"):
        Trainer(tmp_path / "a").train({**SMALL, "algorithm": "iqn"}, "CartPole-v1", model=model)


@pytest.mark.parametrize(
    "model, words",
    [
        (QuantileMLP(2, (8,), num_outputs=11), "has no method atom_logits, expected one, as c51"),
        (AtomMLP(2, (8,), num_outputs=7), "has num_outputs 7, expected 11: num_atoms of c51"),
        (
            AtomMLP(2, (8,), None, 11, value_min=-10.0, value_max=5.0),
            "has value_max 5.0, expected 10.0: value_max",
        ),
    ],
)
def test_a_network_of_other_distributions_is_refused(model, words, tmp_path):
    settings = {**SMALL, "algorithm": "c51", "num_atoms": 11}
    with pytest.raises(ValueError, match=words):
        Trainer(tmp_path / "a").train(settings, "CartPole-v1", model=model)


def test_the_command_line_refuses_what_belongs_to_another_algorithm(capsys):
    from kytolly.command.entry import main

    words = ["train", "dqn", "--env", "CartPole-v1", "--num-atoms", "11"]
    assert main(words) == 2
    assert "--num-atoms" in capsys.readouterr().err
