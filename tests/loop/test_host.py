import subprocess
import sys

import gymnasium
import keras
import numpy as np
import pytest

from kytolly.agent.factory import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.environment.gym.adapter import make_host_env
from kytolly.loop.host import HostLoop


class Counter(gymnasium.Env):
    """Every observation tells copy, episode and step; episodes last 7 steps, reward = step."""

    made = 0

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 1e6, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.copy, self.episode, self.time = Counter.made, -1, 0
        Counter.made += 1

    def _obs(self):
        return np.array([self.copy, self.episode, self.time], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        return self._obs(), float(self.time), False, self.time == 7, {}


def make_loop(env=Counter, num_envs=2, model=None, **settings):
    defaults = {
        "batch_size": 8,
        "hidden_units": (8,),
        "replay_capacity": 400,
        "warmup_env_steps": 40,
        "train_interval_env_steps": 10,
        "updates_per_interval": 2,
    }
    Counter.made = 0
    host = make_host_env(env, num_envs, seed=0)
    cfg = DQNConfig(**{**defaults, **settings}, num_envs=host.num_envs)
    return HostLoop(make_agent(cfg, host.spec, model), host)


def columns(loop):
    size = int(loop.agent.replay.size)
    return [column.numpy()[:size] for column in loop.agent.replay.columns]


def test_rows_are_true_transitions_and_time_limits_keep_their_discount():
    loop = make_loop()
    metrics = loop.run(100)
    loop.close()
    obs, _, reward, discount, next_obs = columns(loop)
    assert len(obs) == 100 == int(loop.agent.env_steps)
    np.testing.assert_array_equal(next_obs, obs + [0, 0, 1])  # never the obs after a reset
    np.testing.assert_array_equal(reward, next_obs[:, 2])
    np.testing.assert_allclose(discount, 0.99, rtol=1e-6)
    assert next_obs[:, 2].max() == 7
    # 50 steps of 2 copies: 7 whole episodes each, with a return of 1 + 2 + ... + 7 = 28
    assert (metrics.episodes, metrics.episode_return, metrics.episode_length) == (14, 392, 98)
    # rounds of 10 env steps, learning from the 4th on, 2 updates each
    assert int(metrics.updates) == 14 == int(loop.agent.policy.updates)


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_dummy_steps_of_a_vector_environment_never_become_rows(mode):
    def make():
        return gymnasium.vector.SyncVectorEnv([Counter, Counter], autoreset_mode=mode)

    loop = make_loop(make, None)
    loop.run(100)
    loop.close()
    obs, _, reward, _, next_obs = columns(loop)
    assert len(obs) == 100
    np.testing.assert_array_equal(next_obs, obs + [0, 0, 1])
    np.testing.assert_array_equal(reward, next_obs[:, 2])


def test_the_acting_weights_are_those_from_before_the_round_being_learnt(monkeypatch):
    loop = make_loop(warmup_env_steps=10, updates_per_interval=1)
    loop.run(0)
    used = []
    collect = loop.collector.collect
    monkeypatch.setattr(
        loop.collector,
        "collect",
        lambda actor: used.append(actor.twin.weights[0].copy()) or collect(actor),
    )
    learnt = [loop.agent.policy.online.get_weights()[0]]
    for _ in range(4):
        loop.run(10)
        learnt.append(loop.agent.policy.online.get_weights()[0])
    loop.close()
    # round k acts with what was learnt from the rounds up to k - 2: one train interval late
    for position, weights in enumerate(used):
        np.testing.assert_allclose(weights, learnt[max(0, position - 1)], atol=1e-7)
    assert not np.array_equal(learnt[0], learnt[-1])


def test_one_seed_gives_one_run_however_it_is_cut_into_calls():
    runs = []
    for calls in ([120], [40, 80], [10] * 12):
        loop = make_loop("CartPole-v1", 1)
        for env_steps in calls:
            loop.run(env_steps)
        loop.close()
        runs.append([*columns(loop), *loop.agent.policy.online.get_weights()])
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_network_without_a_numpy_twin_trains_in_turns():
    def make_model(spec):
        return keras.Sequential(
            [keras.layers.LayerNormalization(), keras.layers.Dense(spec.num_actions)]
        )

    loop = make_loop(model=make_model)
    assert loop.actor.twin is None
    metrics = loop.run(100)
    loop.close()
    assert int(metrics.updates) == 14


def test_a_network_without_a_numpy_twin_trains_where_there_is_one_thread():
    """A learner that waits for rows must not hold the thread that TensorFlow acts on."""
    program = (
        "import tensorflow as tf\n"
        "tf.config.threading.set_inter_op_parallelism_threads(1)\n"
        "from tests.loop.test_host import make_loop\n"
        "import keras\n"
        "layers = lambda spec: [keras.layers.LayerNormalization(), keras.layers.Dense(2)]\n"
        "loop = make_loop(model=lambda spec: keras.Sequential(layers(spec)), xla=False)\n"
        "print(int(loop.run(300).updates))\n"
        "loop.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "54", done.stderr  # 30 rounds, learning from the 4th on


def test_an_environment_that_fails_is_reported_and_ends_the_learner():
    class Broken(Counter):
        def step(self, action):
            if self.episode == 3:
                raise ArithmeticError("the robot fell over")
            return super().step(action)

    loop = make_loop(Broken, 1)
    with pytest.raises(RuntimeError, match="the robot fell over"):
        loop.run(1_000)
    loop.close()
    assert int(loop.agent.env_steps) == 20  # the rounds before the fault are kept


def test_images_and_one_hot_observations_train():
    class Image(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0, 255, (12, 12, 1), np.uint8)

        def _obs(self):
            return np.full((12, 12, 1), self.time, np.uint8)

    loop = make_loop(Image)
    loop.run(60)
    assert columns(loop)[0].dtype == np.uint8
    loop.close()
    loop = make_loop("FrozenLake-v1", 1)
    loop.run(60)
    assert columns(loop)[0].shape == (60, 16)
    loop.close()
