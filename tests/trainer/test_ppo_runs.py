"""PPO from a configuration to a run on disk, and back."""

import csv
import dataclasses
import json

import gymnasium
import keras
import numpy as np
import pytest
import yaml

from kytolly.callback.base import Callback
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.tensor.pendulum import Pendulum
from kytolly.trainer import Trainer
from tests.environment.masked import Masked
from tests.helpers.on_policy_probes import ContinuousAction, DictObservation, MaskedAction

SETTINGS = {
    "num_envs": 2,
    "rollout_steps": 25,
    "num_minibatches": 2,
    "epochs": 2,
    "hidden_units": (8,),
    "total_env_steps": 200,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 3,
    "log_interval_env_steps": 50,
    "evaluation_interval_env_steps": 100,
    "checkpoint_interval_env_steps": 100,
}


def make_config(**settings):
    return PPOConfig(**{**SETTINGS, **settings})


def rows_in(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    trainer = Trainer(tmp_path_factory.mktemp("runs") / "a", progress=False)
    cfg = make_config(
        normalize_observations=True, learning_rate=3e-4, learning_rate_final=1e-4, xla=False
    )
    return trainer, cfg, trainer.train_ppo(cfg, env="CartPole-v1")


def test_a_run_on_disk_is_complete(run):
    _, _, result = run
    names = {path.name.split(".")[0] for path in result.run_dir.iterdir()}
    assert {"config", "events", "metrics", "checkpoints", "best", "result"} <= names
    config = yaml.safe_load((result.run_dir / "config.yaml").read_text())
    assert config["environment"] == "CartPole-v1" and config["settings"]["algorithm"] == "ppo"
    assert config["settings"]["rollout_steps"] == 25
    summary = json.loads((result.run_dir / "result.json").read_text())
    assert (summary["algorithm"], summary["loop"]) == ("ppo", "device")
    # rollouts of 50 env steps, 2 epochs of 2 minibatches each
    assert (summary["env_steps"], summary["updates"]) == (200, 16)
    assert summary["evaluation"]["episodes"] == 3 and summary["env_steps_per_second"] > 0


def test_the_metrics_of_ppo_are_columns_of_the_metrics(run):
    _, _, result = run
    rows = rows_in(result.run_dir)
    assert [int(row["env_steps"]) for row in rows] == [50, 100, 150, 200]
    assert [bool(row["evaluation_return_mean"]) for row in rows] == [False, True, False, True]
    for name in (
        "loss policy_loss value_loss entropy approximate_kl clip_fraction grad_norm "
        "explained_variance episode_return"
    ).split():
        assert np.isfinite([float(row[name]) for row in rows]).all(), name
    assert "td_error" not in rows[0] and "epsilon" not in rows[0]
    # From 3e-4 to 1e-4 linearly; what a rollout learns with depends on the env steps before it.
    rates = [float(row["learning_rate"]) for row in rows]
    np.testing.assert_allclose(rates, [3e-4, 2.5e-4, 2e-4, 1.5e-4], rtol=1e-5)


def test_the_agent_acts_on_one_observation_and_on_a_batch(run):
    _, _, result = run
    action = result.agent.act(np.zeros(4))
    assert isinstance(action, int) and action in (0, 1)
    np.testing.assert_array_equal(result.agent.act(np.zeros((5, 4), np.float32)), [action] * 5)


def test_the_best_network_is_saved_with_its_statistics_and_evaluation_leaves_them_alone(run):
    trainer, _, result = run
    saved = keras.models.load_model(result.run_dir / "best.keras")
    mean, variance, count = saved.non_trainable_weights
    assert float(count) in (100.0, 200.0)  # at the evaluation that was the best
    assert np.abs(mean).max() > 0 and np.abs(np.asarray(variance) - 1).max() > 0.1
    for one, other in zip(saved.weights, result.agent.policy.network.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    again = trainer.evaluate(result.run_dir, episodes=3)
    assert again.returns == result.evaluation.returns
    assert trainer.evaluate(result.run_dir, episodes=3).returns == again.returns


class Interrupt(Callback):
    def on_log(self, state):
        if state.env_steps == 150:
            raise KeyboardInterrupt


def test_a_run_that_is_interrupted_and_resumed_equals_one_that_never_stopped(run, tmp_path):
    _, cfg, whole = run
    trainer = Trainer(tmp_path / "b", progress=False)
    with pytest.raises(KeyboardInterrupt, match="kytolly train ppo --resume"):
        trainer.train_ppo(cfg, "CartPole-v1", [Interrupt()])
    second = trainer.train_ppo(cfg, env="CartPole-v1", resume=True)
    assert second.summary["env_steps"] == 200 and second.summary["updates"] == 16
    timed = {"wall_seconds", "env_steps_per_second", "updates_per_second"}
    timed |= {"process_memory_mb", "process_memory_peak_mb"}
    for one, other in zip(rows_in(whole.run_dir), rows_in(second.run_dir), strict=True):
        for name in set(one) - timed:
            if name.startswith("evaluation"):
                continue  # its episodes begin anew
            assert one[name] == other[name], (one["env_steps"], name)
    assert int(second.agent.policy.optimizer.iterations) == 16


def test_a_checkpoint_of_another_configuration_is_refused(run):
    trainer, cfg, _ = run
    with pytest.raises(ValueError, match="another configuration"):
        trainer.train_ppo(
            dataclasses.replace(cfg, hidden_units=(9,)), env="CartPole-v1", resume=True
        )


@pytest.mark.parametrize(
    "method, settings, words",
    [
        ("train_ppo", DQNConfig(), "train_ppo got DQNConfig, expected .* such as PPOConfig"),
        ("train_dqn", PPOConfig(), "train_dqn got PPOConfig, expected .* such as DQNConfig"),
        ("train_dqn", 3, "train_dqn got 3, expected"),
        ("train", "ppo", "the settings are 'ppo', expected a mapping or a configuration"),
    ],
)
def test_what_a_method_does_not_train_is_named(method, settings, words, tmp_path):
    with pytest.raises(TypeError, match=words):
        getattr(Trainer(tmp_path / "run"), method)(settings, "CartPole-v1")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_elsewhere_says_what_the_run_was_trained_with(run):
    trainer, _, result = run
    with pytest.raises(
        ValueError, match=r"Acrobot-v1 has observation .*\[6\].*discrete': 3.*\[4\]"
    ):
        trainer.evaluate(result.run_dir, env="Acrobot-v1")


class Wanted(gymnasium.Env):
    """Wants the number 0.5 in each of two places; refuses what lies out of bounds."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        reward = -float(np.abs(action - 0.5).sum())
        return self.observation_space.sample(), reward, False, self.steps == 10, {}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.learning)


@pytest.mark.parametrize(
    "env, settings",
    [
        slow(Pendulum(), {"action_bounds": "squash", "normalize_rewards": True}),
        slow(ContinuousAction(), {"state_dependent_std": True, "shared_torso": True}),
        (MaskedAction(), {}),
        slow(DictObservation(), {"normalize_observations": True}),
        (Wanted, {"action_bounds": "squash"}),
        slow(lambda: Masked("info"), {"normalize_observations": True}),
        slow("CartPole-v1", {"loop": "host", "precision": "mixed_bfloat16"}),
    ],
    ids="squashed numbers masked dict host-numbers host-masked host".split(),
)
def test_every_kind_of_environment_trains_and_is_played_again(tmp_path, env, settings):
    cfg = make_config(total_env_steps=100, xla=False, **settings)
    trainer = Trainer(tmp_path / "e", progress=False)
    result = trainer.train_ppo(cfg, env)
    assert result.summary["env_steps"] == 100 and result.summary["updates"] == 8
    again = trainer.evaluate(result.run_dir, episodes=3, env=env)
    if not callable(env):  # of which the run judged two copies, and this plays one
        assert again.returns == result.evaluation.returns


def test_the_host_loop_resumes(tmp_path):
    trainer = Trainer(tmp_path / "f", progress=False)
    cfg = make_config(total_env_steps=100, xla=False, loop="host", normalize_observations=True)
    trainer.train_ppo(cfg, "CartPole-v1")
    longer = dataclasses.replace(cfg, total_env_steps=200)
    result = trainer.train_ppo(longer, "CartPole-v1", resume=True)
    assert result.summary["loop"] == "host" and result.summary["updates"] == 16
    assert [int(row["env_steps"]) for row in rows_in(result.run_dir)] == [50, 100, 150, 200]
    assert int(result.agent.env_steps) == 200


@pytest.mark.learning
def test_processes_step_in_two_groups_and_are_closed(tmp_path):
    cfg = make_config(num_envs=4, total_env_steps=100, xla=False, loop="host", async_envs=True)
    result = Trainer(tmp_path / "g", progress=False).train_ppo(cfg, "CartPole-v1")
    assert result.summary["updates"] == 4 and result.evaluation.episodes == 3


def functional():
    obs = keras.Input((4,))
    hidden = keras.layers.Dense(8, "relu")(obs)
    return keras.Model(obs, [keras.layers.Dense(2)(hidden), keras.layers.Dense(1)(hidden)])


@keras.saving.register_keras_serializable(package="tests")
class Critic(keras.Model):
    """Sequential halves of a user's own."""

    def __init__(self, params, **kwargs):
        super().__init__(**kwargs)
        layers, self.num_params = keras.layers, params
        self.actor = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(params)])
        self.critic = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(1)])

    def call(self, obs):
        return self.actor(obs), self.critic(obs)

    def get_config(self):
        return {**super().get_config(), "params": self.num_params}


@pytest.mark.parametrize(
    "model, loop",
    [slow(functional, "device"), (lambda: lambda spec: Critic(spec.num_actions), "host")],
    ids=["functional", "own"],
)
def test_a_users_keras_model_trains_and_is_played_again(tmp_path, model, loop):
    cfg = make_config(total_env_steps=100, xla=False, loop=loop)
    trainer = Trainer(tmp_path / "h", progress=False)
    result = trainer.train_ppo(cfg, "CartPole-v1", model=model())
    assert result.summary["updates"] == 8 and result.agent.act(np.zeros(4)) in (0, 1)
    assert trainer.evaluate(result.run_dir, 3).returns == result.evaluation.returns


def one_output():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def outputs_of(*units):
    obs = keras.Input((4,))
    return keras.Model(obs, [keras.layers.Dense(n)(obs) for n in units])


@pytest.mark.parametrize(
    "model, words",
    [
        (one_output(), "for 2 observations, expected a pair: (2, 2)"),
        (outputs_of(3, 1), "for 2 observations, expected a pair"),
        (outputs_of(2, 2), "for 2 observations"),
        (outputs_of(2, 1, 1), "expected a pair"),
        (
            keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)]),
            "of shape (4,), dtype float32: ",
        ),
        ("mlp", "model is str, expected a Keras model or a function"),
    ],
    ids="one params value three observation text".split(),
)
def test_a_model_with_the_wrong_outputs_is_refused(tmp_path, model, words):
    trainer = Trainer(tmp_path / "i", progress=False)
    with pytest.raises((ValueError, TypeError)) as error:
        trainer.train_ppo(make_config(), "CartPole-v1", model=model)
    assert words in str(error.value)
    assert not (tmp_path / "i").exists()


def test_a_model_without_statistics_cannot_normalize(tmp_path):
    cfg = make_config(normalize_observations=True)
    with pytest.raises(ValueError, match="has no method update_statistics"):
        Trainer(tmp_path / "j", progress=False).train_ppo(cfg, "CartPole-v1", model=functional())
