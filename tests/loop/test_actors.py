"""Environments in Ray actors: equal to one process, and what happens when an actor dies."""

import importlib.util
import os
import signal
import sys

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly import DQNConfig, PPOConfig, Trainer
from kytolly.agent.acting_rows import RowsAmongAll, among_all
from kytolly.callback.base import Callback
from kytolly.config.rainbow import RainbowConfig
from kytolly.environment.faults import EnvironmentFault
from kytolly.machine.cluster import import_ray, warn_of_little_room
from kytolly.model.numpy_inference import numpy_network
from tests.helpers.cases import rest_learning
from tests.helpers.ray_processes import ray_processes

if importlib.util.find_spec("ray") is None:
    pytest.skip('pip install "kytolly[cluster]"', allow_module_level=True)
ray = import_ray()
SHORT = {"num_envs": 4, "loop": "host", "evaluation_episodes": 1, "final_evaluation_episodes": 1}
SHORT |= {"hidden_units": (8,), "xla": False, "seed": 3, "evaluation_interval_env_steps": 10**6}
PPO = {**SHORT, "rollout_steps": 25, "num_minibatches": 2, "epochs": 2}
DQN = {**SHORT, "batch_size": 8, "warmup_env_steps": 200, "replay_capacity": 3_000}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def make_config(kind, **settings):
    return kind(**{**(PPO if kind is PPOConfig else DQN), **settings})


def train(folder, cfg, env="CartPole-v1", cb=(), **options):
    return Trainer(folder).train(cfg, env, cb, **options)


def weights(result):
    return [np.array(weight) for weight in result.agent.policy.network.get_weights()]


def require_equal(a, b):
    for ours, theirs in zip(weights(a), weights(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)


THREADS = {"env_threads": True}
GRU = {"memory": "gru", "memory_units": 4, "memory_inputs": True}
CASES = [(PPOConfig, "Pendulum-v1", {}, THREADS), (DQNConfig, "CartPole-v1", {}, {})]
CASES += [(PPOConfig, "CartPole-v1", {}, {}), (RainbowConfig, "CartPole-v1", {}, {})]
CASES += [
    (PPOConfig, "CartPole-v1", {"memory_length": 5, **GRU}, {}),
    (DQNConfig, "CartPole-v1", {"memory_length": 4, **GRU}, {}),
]


@pytest.mark.parametrize(("kind", "env", "memory", "settings"), rest_learning(CASES, CASES[:2]))
def test_actors_learn_what_one_process_learns(kind, env, memory, settings, tmp_path):
    cfg = {"total_env_steps": 5_000, **memory}
    alone = train(tmp_path / "alone", make_config(kind, **cfg), env)
    actors = train(tmp_path / "actors", make_config(kind, **cfg, **settings, actors=2), env)
    require_equal(alone, actors)
    for name in ("env_steps", "updates"):
        assert alone.summary[name] == actors.summary[name]
    assert actors.summary["env_restarts"] == 0


class AtRows(Callback):
    """Does something at some of the rows of metrics."""

    def __init__(self, act, every=1):
        self.act, self.every, self.count = act, every, 0

    def on_log(self, state):
        self.count += 1
        if self.count % self.every == 0:
            self.act()


def kill_an_actor():
    """Kill the process of the actor that was made first."""
    os.kill(min(ray_processes("EnvActor")), signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "deaths"),
    rest_learning([(DQNConfig, 2), (PPOConfig, 2), (DQNConfig, 10)], [(DQNConfig, 2)]),
)
def test_a_dead_actor_is_made_anew_with_new_episodes(kind, deaths, tmp_path):
    # One dies at every second of the rows but the last, after which no block is collected.
    steps = {"total_env_steps": 500 * (2 * deaths + 1), "log_interval_env_steps": 500}
    killer = AtRows(kill_an_actor, every=2)
    result = train(tmp_path / "r", make_config(kind, **steps, actors=2), cb=[killer])
    assert result.summary["env_steps"] >= steps["total_env_steps"]
    assert killer.count // 2 == deaths
    assert result.summary["env_restarts"] == 2 * deaths  # two environments each


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", rest_learning([DQNConfig, PPOConfig], [DQNConfig]))
def test_a_resumed_run_goes_on_within_the_episodes_of_its_actors(kind, tmp_path):
    cfg = make_config(kind, total_env_steps=2_000, log_interval_env_steps=500, actors=2)
    whole = train(tmp_path / "whole", cfg)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", cfg, cb=[AtRows(interrupt, every=2)])
    require_equal(whole, train(tmp_path / "parts", cfg, resume=True))


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("CartPole-v1", {"loop": "auto"}, "actors is set, and CartPole-v1 is tensor code"),
        ("CartPole-v1", {"num_envs": 3}, "num_envs is 3 with 2 actors, expected a multiple"),
        (gymnasium.make("CartPole-v1"), {}, "an environment that exists cannot move"),
        (lambda: 1 / 0, {}, "ZeroDivisionError"),
    ],
)
def test_what_actors_cannot_hold_is_refused(env, settings, message, tmp_path):
    cfg = make_config(DQNConfig, **{**settings, "actors": 2, "total_env_steps": 500})
    with pytest.raises((ValueError, EnvironmentFault), match=message):
        train(tmp_path / "r", cfg, env)


@pytest.mark.parametrize("shares", [1, 2, 4, 8])
def test_an_actor_computes_its_rows_as_one_process_computes_them(shares):
    obs = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    network = numpy_network(make_network(), tf.TensorSpec([3], tf.float32))
    whole, size = network(obs), 8 // shares
    for first in range(0, 8, size):
        rows = slice(first, first + size)
        np.testing.assert_array_equal(among_all(network, rows, 8)(obs[rows]), whole[rows])
    # The same rows alone: BLAS rounds them by how many they are.
    assert isinstance(among_all(network, slice(0, 2), 8), RowsAmongAll)
    assert among_all(network, slice(0, 2), 10**5) is network  # it would compute too much in vain


def make_network():
    layers = [keras.layers.Dense(64, "tanh"), keras.layers.Dense(64, "tanh"), keras.layers.Dense(1)]
    network = keras.Sequential(layers)
    network.build((None, 3))
    return network


def test_actors_that_will_wait_for_room_are_told_of():
    with pytest.warns(UserWarning, match="5 actors need a CPU each, and the cluster has 4"):
        warn_of_little_room(ray, 5)


def test_without_ray_the_command_that_installs_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "kytolly\[cluster\]"'):
        train(tmp_path / "r", make_config(DQNConfig, actors=2))
