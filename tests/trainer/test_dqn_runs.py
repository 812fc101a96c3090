import csv
import dataclasses
import json
import shutil
import warnings

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

import kytolly
from kytolly.callback.base import Callback
from kytolly.config.dqn import DQNConfig
from kytolly.loop.host_env_runner import HostEnvRunner
from kytolly.machine.facts import device_name
from kytolly.trainer import Trainer, train_dqn, train_ppo
from tests.helpers.cases import learning


@pytest.fixture(scope="module")
def cfg(small_config):
    """Without XLA, which takes seconds to compile; `run` is the one with it."""
    return dataclasses.replace(small_config, xla=False)


class Recorder(Callback):
    def __init__(self):
        self.hooks = []

    def on_train_begin(self, state):
        self.hooks.append(("begin", state.env_steps))

    def on_log(self, state):
        self.hooks.append(("log", state.env_steps))

    def on_evaluation(self, state):
        self.hooks.append(("evaluation", state.env_steps))

    def on_train_end(self, state):
        self.hooks.append(("end", state.env_steps))


@pytest.fixture(scope="module")
def run(small_config, tmp_path_factory):
    recorder = Recorder()
    folder = tmp_path_factory.mktemp("runs") / "a"
    trainer = Trainer(folder, progress=False)
    result = trainer.train_dqn(small_config, env="CartPole-v1", cb=[recorder])
    return trainer, result, recorder


def test_callbacks_are_told_what_happens_in_order(run):
    _, _, recorder = run
    assert recorder.hooks == [
        ("begin", 0),
        ("log", 100),
        ("log", 200),
        ("evaluation", 200),
        ("log", 300),
        ("log", 400),
        ("evaluation", 400),
        ("end", 400),
    ]


def test_a_run_on_disk_is_complete(run):
    _, result, _ = run
    names = {path.name.split(".")[0] for path in result.run_dir.iterdir()}
    assert {"config", "events", "metrics", "checkpoints", "best", "result"} <= names
    config = yaml.safe_load((result.run_dir / "config.yaml").read_text())
    assert config["environment"] == "CartPole-v1" and config["settings"]["batch_size"] == 8
    assert {"python", "tensorflow", "keras", "kytolly"} <= set(config["versions"])
    summary = json.loads((result.run_dir / "result.json").read_text())
    promised = (
        "algorithm environment loop seed parameters env_steps updates wall_seconds compile_seconds "
        "env_steps_per_second evaluation stopped_by run_dir memory"
    )
    assert set(promised.split()) == set(summary)
    assert set(summary["evaluation"]) == {"episodes", "return_mean", "return_std", "length_mean"}
    with (result.run_dir / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["env_steps"]) for row in rows] == [100, 200, 300, 400]
    assert [bool(row["evaluation_return_mean"]) for row in rows] == [False, True, False, True]


def test_the_result_counts_what_was_done(run):
    _, result, _ = run
    assert result.stopped_by == "total_env_steps" and result.summary["loop"] == "device"
    # iterations of 10 env steps; learning begins with the one that completes 50: 36 rounds, 2 each
    assert (result.summary["env_steps"], result.summary["updates"]) == (400, 72)
    assert result.evaluation.episodes == 4
    assert result.summary["env_steps_per_second"] > 0


def test_the_agent_acts_on_one_observation_and_on_a_batch(run):
    _, result, _ = run
    action = result.agent.act(np.zeros(4))
    assert isinstance(action, int) and action in (0, 1)
    actions = result.agent.act(np.zeros((5, 4), np.float32))
    np.testing.assert_array_equal(actions, [action] * 5)
    with pytest.raises(ValueError, match=r"expected \(4,\) or a batch"):
        result.agent.act(np.zeros(3))


def test_evaluate_plays_the_best_weights_again(run):
    trainer, result, _ = run
    again = trainer.evaluate(result.run_dir, episodes=4)
    assert again.returns == result.evaluation.returns
    other = trainer.evaluate(result.run_dir, episodes=4, seed=7)
    assert other.returns != again.returns


def test_an_existing_run_is_refused_and_left_alone(run, cfg):
    trainer, result, _ = run
    before = {path: path.stat().st_mtime_ns for path in result.run_dir.rglob("*")}
    with pytest.raises(ValueError, match="exists and is not empty"):
        trainer.train_dqn(cfg, env="CartPole-v1")
    assert before == {path: path.stat().st_mtime_ns for path in result.run_dir.rglob("*")}


def test_a_run_is_resumed_with_its_buffer_optimizer_and_best_weights(run, cfg, tmp_path):
    _, first, _ = run
    trainer = Trainer(shutil.copytree(first.run_dir, tmp_path / "b"), progress=False)
    longer = dataclasses.replace(cfg, total_env_steps=600)
    recorder = Recorder()
    second = trainer.train_dqn(longer, env="CartPole-v1", cb=[recorder], resume=True)
    assert recorder.hooks[0] == ("begin", 400) and recorder.hooks[-1] == ("end", 600)
    assert int(second.agent.memory.size) == 500 and int(second.agent.policy.updates) == 112
    assert int(second.agent.policy.optimizer.iterations) == 112
    with (tmp_path / "b" / "metrics.csv").open() as file:
        rows = [int(row["env_steps"]) for row in csv.DictReader(file)]
    assert rows == [100, 200, 300, 400, 500, 600]
    first_rows = first.agent.memory.columns.obs.numpy()[100:400]
    np.testing.assert_array_equal(second.agent.memory.columns.obs.numpy()[100:400], first_rows)


def test_the_best_weights_are_kept_when_later_ones_are_worse(cfg, tmp_path):
    class Remember(Callback):
        """Keeps the weights of the first evaluation."""

        def on_evaluation(self, state):
            if state.env_steps == 200:
                self.best = [np.array(weight) for weight in state.network.get_weights()]

    remember = Remember()
    threshold = dataclasses.replace(cfg, reward_threshold=1.0)
    result = Trainer(tmp_path / "e", progress=False).train_dqn(threshold, "CartPole-v1", [remember])
    assert result.stopped_by == "reward_threshold" and result.summary["env_steps"] == 200
    for kept, best in zip(result.agent.policy.network.get_weights(), remember.best, strict=True):
        np.testing.assert_array_equal(kept, best)


class OneStep(gymnasium.Env):
    """An episode of one step, which pays `noise` of deviation 1 around 0."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.np_random.normal(), True, False, {}


def test_luck_is_not_named_where_the_last_weights_are_no_better(cfg, tmp_path):
    few = dataclasses.replace(cfg, evaluation_interval_env_steps=100, evaluation_episodes=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = Trainer(tmp_path / "l", progress=False).train_dqn(few, OneStep)
    best = max(row["evaluation_return_mean"] for row in result.history)
    assert best - result.evaluation.return_mean > 0.3
    assert not any("by luck" in str(warning.message) for warning in said)


class Sign(OneStep):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    bonus = 0.0

    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        self.sign = self.np_random.choice([-1, 1])
        return np.full(1, self.sign, np.float32), {}

    def step(self, action):
        return (
            np.zeros(1, np.float32),
            float(action == (self.sign > 0)) + Sign.bonus,
            True,
            False,
            {},
        )


class LuckyOnce(Callback):
    """The first evaluation has a bonus, which its weights did not earn."""

    def __init__(self, bonus):
        Sign.bonus = bonus

    def on_evaluation(self, state):
        Sign.bonus = 0.0


@pytest.mark.parametrize("luck", [1.0, 0.0])
def test_last_weights_that_are_better_than_lucky_ones_are_kept(luck, cfg, tmp_path):
    often = dataclasses.replace(
        cfg, evaluation_interval_env_steps=20, total_env_steps=600, learning_rate=0.01, seed=1
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = Trainer(tmp_path / "s", progress=False).train_dqn(often, Sign, [LuckyOnce(luck)])
    returns = [row["evaluation_return_mean"] for row in result.history]
    assert returns[0] >= luck and returns[0] < luck + 0.9
    texts = [str(warning.message) for warning in said]
    kept = any("The last ones return 1.00: best.keras has these" in text for text in texts)
    assert kept is bool(luck)
    assert result.evaluation.return_mean == 1.0
    obs = np.array([[-1], [1]], np.float32)
    for weights in ("best", "last"):
        loaded = kytolly.load(result.run_dir, weights=weights)
        assert loaded.act(obs).tolist() == [0, 1]
    assert result.agent.act(obs).tolist() == [0, 1]


def test_keras_callbacks_stop_a_run(cfg, tmp_path):
    stop = keras.callbacks.EarlyStopping("evaluation_return", mode="max", patience=1, min_delta=1e9)
    result = Trainer(tmp_path / "f", progress=False).train_dqn(cfg, "CartPole-v1", [stop])
    assert result.stopped_by == "early_stop"


class Subclassed(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.units = units
        self.hidden = keras.layers.Dense(units, activation="tanh")
        self.out = keras.layers.Dense(2)

    def call(self, obs):
        return self.out(self.hidden(obs))

    def get_config(self):
        return {"units": self.units}


@pytest.mark.parametrize(
    "model",
    [
        learning(keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])),
        lambda spec: Subclassed(8),
    ],
    ids=["sequential", "subclassed"],
)
def test_a_users_keras_model_trains(cfg, tmp_path, model):
    short = dataclasses.replace(cfg, total_env_steps=100)
    result = Trainer(tmp_path / "g", progress=False).train_dqn(short, "CartPole-v1", model=model)
    assert result.summary["updates"] == 12
    assert result.agent.act(np.zeros(4)) in (0, 1)


def test_a_keras_model_of_the_wrong_output_shape_is_refused(cfg, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match=r"returns shape \(2, 3\).*expected \(2, 2\)"):
        Trainer(tmp_path / "h", progress=False).train_dqn(cfg, "CartPole-v1", model=model)
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    "env",
    [
        lambda: gymnasium.make("CartPole-v1"),
        learning(gymnasium.make("CartPole-v1")),
        gymnasium.make_vec("CartPole-v1", 2),
    ],
    ids=["factory", "environment", "vector environment"],
)
def test_every_kind_of_gymnasium_environment_trains(cfg, tmp_path, env):
    short = dataclasses.replace(cfg, total_env_steps=100)
    result = Trainer(tmp_path / "i", progress=False).train_dqn(short, env)
    assert result.summary["loop"] == "host" and result.evaluation.episodes == 4
    # three iterations of 10 env steps, about 32, are collected with the same weights
    assert result.summary["env_steps"] == 120


@pytest.mark.learning
def test_both_loops_learn_the_same_with_the_same_configuration(tmp_path):
    cfg = DQNConfig(
        total_env_steps=6_000,
        train_interval_env_steps=64,
        updates_per_interval=32,
        exploration_env_steps=3_000,
        evaluation_episodes=20,
        evaluation_interval_env_steps=1_000,
        final_evaluation_episodes=20,
        seed=3,
    )
    scores = {}
    for loop in ("device", "host"):
        one = dataclasses.replace(cfg, loop=loop)
        result = Trainer(tmp_path / loop, progress=False).train_dqn(one, "CartPole-v1")
        scores[loop] = result.evaluation.return_mean
    assert min(scores.values()) > 100  # a random policy reaches 22


def test_devices_are_named_or_refused(monkeypatch, tmp_path):
    assert device_name("auto") is None and device_name("cpu") == "/CPU:0"
    for name in ("gpu", "cuda", "gpu:0", "cuda:0"):
        with pytest.raises(ValueError, match=f"device is '{name}', and TensorFlow sees 0 GPU"):
            device_name(name)
    for name in ("tpu", "gpu:one", "cudagpu"):
        with pytest.raises(ValueError, match="expected auto, cpu, gpu or gpu:N"):
            device_name(name)
    with pytest.raises(ValueError, match="sees 0 GPU"):
        Trainer(tmp_path / "j").train_dqn({"device": "cuda"}, "CartPole-v1")
    assert not (tmp_path / "j").exists()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a", "b"])
    assert (
        device_name("gpu:1") == device_name("cuda:1") == "/GPU:1"
        and device_name("auto") == "/GPU:0"
    )


SHORT = {"total_env_steps": 60, "xla": False, "evaluation_episodes": 2, "hidden_units": [4]}
SHORT |= {"final_evaluation_episodes": 2, "warmup_env_steps": 16, "batch_size": 8}


def test_a_mapping_is_a_configuration(tmp_path):
    trainer = Trainer(tmp_path / "k", progress=False)
    result = trainer.train_dqn({**SHORT, "algorithm": "ddqn"}, "CartPole-v1")
    assert result.summary["algorithm"] == "ddqn"
    assert result.agent.cfg.hidden_units == (4,) and result.summary["env_steps"] == 64
    assert result.agent.cfg.double  # which the name says


def test_a_mapping_must_name_its_algorithm_and_know_its_settings(tmp_path):
    trainer = Trainer(tmp_path / "l", progress=False)
    for values, words in (
        ({}, "name no algorithm, expected one of dqn, ddqn, c51"),
        ({"algorithm": "dqnn"}, "'dqnn' is no algorithm.*Did you mean 'dqn'?"),
        ({"algorithm": ["dqn"]}, r"algorithm is \['dqn'\], expected one of dqn"),
        ({"algorithm": "ppo", "n_step": 3}, "'n_step' is not a setting of PPOConfig"),
    ):
        with pytest.raises(ValueError, match=words):
            trainer.train(values, "CartPole-v1")
    assert not (tmp_path / "l").exists()


@pytest.mark.learning
def test_the_functions_of_the_module_make_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train_dqn(SHORT, "CartPole-v1")
    assert result.summary["algorithm"] == "dqn"
    assert result.run_dir.parent.resolve() == (tmp_path / "runs").resolve()
    assert result.run_dir.name.startswith("CartPole-v1_dqn_0_")
    short = {key: SHORT[key] for key in SHORT if key not in ("warmup_env_steps", "batch_size")}
    result = train_ppo({**short, "num_envs": 2, "rollout_steps": 16}, "CartPole-v1")
    assert result.summary["algorithm"] == "ppo" and result.run_dir.name.startswith(
        "CartPole-v1_ppo_0"
    )


def test_environments_are_closed_when_the_model_does_not_fit(cfg, tmp_path, monkeypatch):
    closed, close = [], HostEnvRunner.close
    monkeypatch.setattr(HostEnvRunner, "close", lambda side: closed.append(side) or close(side))
    host = dataclasses.replace(cfg, loop="host")
    with pytest.raises(TypeError, match="expected a Keras model"):
        Trainer(tmp_path / "m").train_dqn(host, "CartPole-v1", model=3)
    assert len(closed) == 1
