"""PQN, trained as a user trains it."""

import numpy as np
import pytest

import kytolly
from kytolly.command.entry import main
from kytolly.config.tuned import MINATAR, tuned_settings
from kytolly.deployment.export import export
from kytolly.trainer import Trainer
from tests.helpers.cases import learning

SMALL = {
    "algorithm": "pqn",
    "total_env_steps": 256,
    "num_envs": 2,
    "rollout_steps": 16,
    "epochs": 2,
    "num_minibatches": 2,
    "hidden_units": (8, 8),
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "evaluation_interval_env_steps": 64,
    "log_interval_env_steps": 64,
}


def train(folder, env="CartPole-v1", resume=False, **settings):
    return Trainer(folder, progress=False).train({**SMALL, **settings}, env, resume=resume)


def weights_of(result):
    result.agent.policy.publish()
    return result.agent.policy.network.get_weights()


def assert_same_weights(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("loop", ["device", learning("host")])
def test_a_run_is_repeated_and_resumed_bit_for_bit_in_both_loops(loop, tmp_path):
    settings = {"loop": loop, "xla": False, "td_lambda": 0.8, "learning_rate_final": None}
    whole = train(tmp_path / "a", **settings)
    assert whole.summary["updates"] == 32 and whole.summary["loop"] == loop
    train(tmp_path / "b", **settings | {"total_env_steps": 128})
    assert_same_weights(whole, train(tmp_path / "b", **settings, resume=True))


COMPILED = {"env": "MinAtar/Breakout-v0", "hidden_units": (16,), "xla": True}


@pytest.mark.learning
def test_a_compiled_run_on_a_grid_is_repeated(tmp_path):
    first = train(tmp_path / "a", **COMPILED)
    assert_same_weights(first, train(tmp_path / "b", **COMPILED))


def test_a_compiled_run_on_a_grid_is_loaded_and_exported(tmp_path):
    train(tmp_path / "a", **COMPILED)
    agent = kytolly.load(tmp_path / "a")
    obs = np.random.default_rng(0).random((5, 10, 10, 4)) < 0.1
    q = agent.q_values(obs)
    assert q.shape == (5, 6)
    np.testing.assert_allclose(q, agent.network(obs), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(agent.act(obs), q.argmax(axis=1))
    report = export(agent, "saved_model", tmp_path / "exported")
    assert report.equal_actions + report.near_ties == report.observations


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"n_step": 3}, "'n_step' is not a setting of PQNConfig"),
        ({"num_minibatches": 3}, "num_minibatches .3. does not divide the rollout of 32 rows"),
        ({"epsilon_final": 0.5, "epsilon_start": 0.1}, "exploration only falls"),
        ({"td_lambda": 1.5}, "td_lambda is 1.5, expected a number, at least 0 and at most 1"),
    ],
)
def test_what_does_not_fit_is_refused(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        train(tmp_path / "a", **settings)
    assert not (tmp_path / "a").exists()


def test_continuous_actions_are_refused(tmp_path):
    with pytest.raises(ValueError, match="pqn"):
        train(tmp_path / "a", "Pendulum-v1")


def test_the_command_line_refuses_what_belongs_to_another_algorithm(capsys):
    assert main(["train", "ppo", "--env", "CartPole-v1", "--td-lambda", "0.5"]) == 2
    assert "--td-lambda" in capsys.readouterr().err


@pytest.mark.parametrize("game", MINATAR)
def test_tuned_settings_of_minatar_fit(game):
    from kytolly.config.pqn import PQNConfig

    for rules in (0, 1):
        cfg = PQNConfig(**tuned_settings("pqn", f"MinAtar/{game}-v{rules}"))
        assert cfg.rows_per_update == 128 and cfg.total_env_steps == 10_000_000
